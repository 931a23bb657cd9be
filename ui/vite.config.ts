import { defineConfig } from "vite";

// `make ui-dev` serves the sources with reload, and hands requests for the API to a running `monque web`.
const api = process.env["MONQUE_API"] ?? "http://127.0.0.1:8787";

export default defineConfig({
  base: "./",
  // h(type, props, ...children) is shorter than the automatic runtime's props with children: 0.8 kB less to send.
  oxc: { jsx: { runtime: "classic", pragma: "h", pragmaFrag: "Fragment" }, jsxInject: `import { h, Fragment } from "preact"` },
  build: {
    outDir: "../src/monque/web/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the page's policy allows no data: URL but images
    modulePreload: false,
    cssCodeSplit: false, // one file of styles; screens that are fetched later need no other
    license: { fileName: "LICENSES.md" },
    rollupOptions: { output: { entryFileNames: "assets/[name]-[hash].js", assetFileNames: "assets/[name]-[hash][extname]" } },
  },
  server: { port: 5173, strictPort: true, proxy: { "/api": { target: api, changeOrigin: true } } },
});
