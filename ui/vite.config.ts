import { appendFileSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

// `make ui-dev` serves the sources with reload, and hands requests for the API to a running `monque web`.
const api = process.env.MONQUE_API ?? "http://127.0.0.1:8787";
const key = process.env.MONQUE_WEB_KEY;

export default defineConfig({
  base: "./",
  // h(type, props, ...children) is shorter than the automatic runtime's props with children: 0.8 kB less to send.
  oxc: {
    jsx: { runtime: "classic", pragma: "h", pragmaFrag: "Fragment" },
    jsxInject: `import { h, Fragment } from "preact"`,
  },
  plugins: [packed(), fontNotice()],
  build: {
    outDir: "../src/monque/web/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the page's policy allows no data: URL but images
    modulePreload: { polyfill: false }, // what a screen is made of comes at once, not one after the other
    cssCodeSplit: false, // styles are few: in parts, a screen could be drawn before its own
    cssTarget: ["chrome123", "firefox121", "safari17.5"], // which know light-dark() and :has()
    license: { fileName: "LICENSES.md" },
    rollupOptions: {
      treeshake: { propertyReadSideEffects: false, unknownGlobalSideEffects: false },
      output: {
        codeSplitting: { groups: [{ name: "base", test: /\/src\/(?!screens\/)|node_modules/ }] },
        chunkFileNames: "assets/[name]-[hash].js",
        entryFileNames: "assets/[name]-[hash].js",
        assetFileNames: "assets/[name]-[hash][extname]",
      },
    },
  },
  server: {
    port: 5173,
    strictPort: true,
    proxy: { "/api": { target: api, changeOrigin: true, ...(key && { headers: { authorization: `Bearer ${key}` } }) } },
  },
});

/** A packed copy beside each file that is sent often: the server need not pack it again. */
function packed(): Plugin {
  return {
    name: "packed",
    writeBundle({ dir = "" }) {
      const folder = `${dir}/assets`;
      for (const name of readdirSync(folder).filter((each) => !each.endsWith(".woff2")))
        writeFileSync(`${folder}/${name}.gz`, gzipSync(readFileSync(`${folder}/${name}`), { level: 9 }));
    },
  };
}

/** The licence of the font: Vite collects those of scripts only. */
function fontNotice(): Plugin {
  return {
    name: "font-notice",
    closeBundle() {
      const folder = "node_modules/@fontsource-variable/inter";
      const { name, version } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
      const text = readFileSync(`${folder}/LICENSE`, "utf8");
      appendFileSync("../src/monque/web/static/LICENSES.md", `\n## ${name} - ${version} (OFL-1.1)\n\n${text}`);
    },
  };
}
