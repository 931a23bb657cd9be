import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

// `make ui-dev` serves the sources with reload, and hands requests for the API to a running `monque web`.
const api = process.env["MONQUE_API"] ?? "http://127.0.0.1:8787";
const key = process.env["MONQUE_WEB_KEY"];

export default defineConfig({
  base: "./",
  // h(type, props, ...children) is shorter than the automatic runtime's props with children: 0.8 kB less to send.
  oxc: { jsx: { runtime: "classic", pragma: "h", pragmaFrag: "Fragment" }, jsxInject: `import { h, Fragment } from "preact"` },
  plugins: [packed()],
  build: {
    outDir: "../src/monque/web/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the page's policy allows no data: URL but images
    modulePreload: false,
    cssCodeSplit: false, // one script and one file of styles: together they weigh less than in parts
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // which know light-dark()
    license: { fileName: "LICENSES.md" },
    rollupOptions: { treeshake: { propertyReadSideEffects: false, unknownGlobalSideEffects: false }, output: { entryFileNames: "assets/[name]-[hash].js", assetFileNames: "assets/[name]-[hash][extname]" } },
  },
  server: { port: 5173, strictPort: true, proxy: { "/api": { target: api, changeOrigin: true, ...(key && { headers: { authorization: `Bearer ${key}` } }) } } },
});

/** A packed copy beside each file that is sent often: the server need not pack it again. */
function packed(): Plugin {
  return {
    name: "packed",
    writeBundle({ dir = "" }) {
      const folder = `${dir}/assets`;
      for (const name of readdirSync(folder)) writeFileSync(`${folder}/${name}.gz`, gzipSync(readFileSync(`${folder}/${name}`), { level: 9 }));
    },
  };
}
