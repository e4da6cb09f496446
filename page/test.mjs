// Bundles test/*.test.ts and runs them with Node's own test runner: node test.mjs
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "page-"));
try {
  const entries = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts"));
  buildSync({
    absWorkingDir: here,
    entryPoints: entries.map((name) => join("test", name)),
    bundle: true,
    platform: "node",
    format: "esm",
    outdir: folder,
    outExtension: { ".js": ".mjs" },
  });
  process.exitCode = spawnSync(process.execPath, ["--test", folder], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true });
}
