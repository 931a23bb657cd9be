// `npm test` bundles the tests of the pure parts for Node, then runs them with `node --test`.
import { readdirSync } from "node:fs";
import { defineConfig } from "vite";

const folder = "src/tests";
const tests = readdirSync(folder).filter((name) => name.endsWith(".test.ts"));

export default defineConfig({
  publicDir: false,
  build: {
    ssr: true,
    outDir: ".tests",
    emptyOutDir: true,
    target: "node20",
    minify: false,
    rollupOptions: {
      input: Object.fromEntries(tests.map((name) => [name.replace(".ts", ""), `${folder}/${name}`])),
      output: { entryFileNames: "[name].mjs" },
    },
  },
});
