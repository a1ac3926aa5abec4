#!/bin/sh
# Generates the secrets of compose.yaml in ./secrets. Existing files are kept, so it can be repeated.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets
# Only this user can reach the files; the users of the containers, which see single files, can read them.
chmod 0700 secrets

generate() {
  [ -s "secrets/$1" ] || printf '%s\n' "$2" >"secrets/$1"
  chmod 0444 "secrets/$1"
}
random() { openssl rand -base64 48 | tr -d '\n'; }
uri() {
  printf 'mongodb://%s:%s@mongo-1:27017,mongo-2:27017,mongo-3:27017/%s?replicaSet=rs0' "$1" "$(openssl rand -hex 24)" "$1"
}

generate admin-password "$(random)"
generate idp-admin-token "$(random)"
generate idp-database-uri "$(uri idp)"
generate idp-ed25519-seed "$(openssl rand -hex 32)"
generate jwt-access-secret "$(random)"
generate jwt-refresh-secret "$(random)"
generate mongo-admin-password "$(openssl rand -hex 24)"
generate mongo-keyfile "$(openssl rand -base64 756)"
generate saas-database-uri "$(uri saas)"
