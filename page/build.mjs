// Bundles src/ and the libraries it uses into one HTML file that needs no network.
//
//   node build.mjs            writes ../src/counterprobe/trace/page.html
//   node build.mjs --check    compares it with what the sources give, and fails when they differ
//
// Script and style are inline, and the page's policy names their hashes: nothing else may run, and
// nothing may be fetched. Licences of the libraries stand in a comment at the end of the page.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "..", "src", "counterprobe", "trace", "page.html");
const MAX_BYTES = 1_000_000;

async function bundle(entry, options = {}) {
  const result = await build({
    absWorkingDir: here,
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    charset: "utf8",
    legalComments: "none",
    ...options,
  });
  return { text: result.outputFiles[0].text.trim(), inputs: Object.keys(result.metafile.inputs) };
}

const hash = (text) => `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;

function licences(inputs) {
  const names = new Set();
  for (const path of inputs) {
    const match = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
    if (match) names.add(match[1]);
  }
  return [...names].sort().map((name) => {
    const folder = join(here, "node_modules", name);
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = ["LICENSE", "LICENSE.md", "LICENSE.txt"].find((f) => existsSync(join(folder, f)));
    if (!file) throw new Error(`${name} comes without a licence file`);
    const text = readFileSync(join(folder, file), "utf8").trim().replaceAll("--", "- -");
    return `${name} ${version}\n\n${text}`;
  });
}

const script = await bundle("src/main.ts", { format: "iife", target: "es2022" });
const style = await bundle("src/style.css");
if (/<\/script|<!--/i.test(script.text)) throw new Error("the script would end its own element");

const policy = [
  "default-src 'none'",
  `script-src ${hash(script.text)}`,
  `style-src ${hash(style.text)}`,
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");

const parts = {
  policy,
  style: style.text,
  script: script.text,
  licences: licences(script.inputs).join(`\n\n${"=".repeat(72)}\n\n`),
};
const template = readFileSync(join(here, "src", "page.html"), "utf8");
const page = template.replace(/\{\{(\w+)\}\}/g, (_, name) => parts[name]);
const bytes = Buffer.byteLength(page, "utf8");
if (bytes > MAX_BYTES) throw new Error(`the page has ${bytes} bytes, more than ${MAX_BYTES}`);

if (process.argv.includes("--check")) {
  const current = existsSync(target) ? readFileSync(target, "utf8") : "";
  if (current !== page) {
    console.error("src/counterprobe/trace/page.html differs from its sources: run `make page`");
    process.exit(1);
  }
  console.log(`page.html is current, ${bytes} bytes`);
} else {
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, page);
  console.log(`wrote page.html, ${bytes} bytes`);
}
