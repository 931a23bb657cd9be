import { render } from "preact";
import { App } from "./frame";
import { listen } from "./router";
import { start } from "./stream";
import "./styles.css";

listen();
start();
render(<App />, document.getElementById("app") as HTMLElement);
