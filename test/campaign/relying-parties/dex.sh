#!/usr/bin/env bash
# Builds Dex at the given path, from the Go module proxy, which is publicly available.
set -euo pipefail
target=$(realpath -m "$1")
# Go does not accept the release tags as versions of one module, so this builds a commit by date.
version=v0.0.0-20260806151424-ab64ed778070

source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
module=$(go mod download -json "github.com/dexidp/dex@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
cp -r "$module/." "$source"
chmod -R u+w "$source"
cd "$source"
# Its management API requires a module that was not published that day; a stub replaces it.
sed -i '/^replace /d' go.mod
rm server/apiserver/*.go
cat > server/apiserver/apiserver.go <<'GO'
package apiserver

import "github.com/dexidp/dex/api/v2"

func NewAPI(...any) api.DexServer { return api.UnimplementedDexServer{} }
GO
CGO_ENABLED=0 go build -v -mod=mod -o "$target" ./cmd/dex
