import { render } from "preact";
import { App } from "./frame";
import { keepFocus } from "./focus";
import { listen } from "./router";
import { sayWhatOthersDo } from "./others";
import { rememberPlaces } from "./recent";
import { listenKeys } from "./shortcuts";
import { start } from "./stream";
import "./styles.css";

listen();
listenKeys();
keepFocus();
rememberPlaces();
sayWhatOthersDo();
start();
render(<App />, document.getElementById("app") as HTMLElement);
