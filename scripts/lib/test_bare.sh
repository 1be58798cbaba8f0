#!/usr/bin/env bash
# Runs scripts/test and scripts/demo on a system with nothing but a minimal Debian or Ubuntu, in a chroot.
# Usage: scripts/test bare [SUITE] [key=value ...]     needs root; SUITE is bookworm (Debian 12) or noble (Ubuntu 24.04)
#   Further arguments go to the demo; without any, it trains for few steps: its figures are not what is looked at here.
# The archive is this machine's own for its own family of systems, else debootstrap's default; CHORUS_BARE_MIRROR names another.
set -euo pipefail
cd "$(dirname "$0")/../.."
suite=bookworm
[[ $# -gt 0 && $1 != *=* ]] && { suite=$1; shift; }
(($#)) || set -- phases[{0,1,2}].steps=100 phases[{0,1,2}].schedule.warmup_steps=10

say() { echo "== bare: $*"; }
((EUID == 0)) || { echo "scripts/test bare: a chroot needs root; run it as: sudo scripts/test bare" >&2; exit 1; }
# Mounts live in a namespace of their own: they are gone with this process, however it ends.
[[ ${CHORUS_BARE_INSIDE:-} ]] || CHORUS_BARE_INSIDE=1 exec unshare --mount --propagation private "$0" "$suite" "$@"

own_archive() { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | head -n 1; }
recipes=/usr/share/debootstrap/scripts
case $suite in
  noble | jammy) family=ubuntu recipe=$recipes/gutsy components=main,universe ;;  # newer than this debootstrap may know
  *) family=debian recipe=$recipes/sid components=main ;;
esac
if ! command -v debootstrap >/dev/null; then
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends debootstrap >/dev/null
fi
mirror=${CHORUS_BARE_MIRROR:-}
[[ $mirror || $(source /etc/os-release && echo "$ID") != "$family" ]] || mirror=$(own_archive)
[[ $mirror ]] || mirror=$(sed -n 's,.*default_mirror \(.*/archive\..*\),\1,p' "$recipe" | head -n 1)  # debootstrap forgets it without keys
root=$(mktemp -d "${TMPDIR:-/tmp}/chorus-bare-XXXXXX")
trap 'umount -R "$root/proc" "$root/dev" 2>/dev/null || true; rm -rf --one-file-system "$root"' EXIT

say "a minimal $suite in $root"
begin=$SECONDS
debootstrap --variant=minbase --components="$components" "$suite" "$root" "$mirror" "$recipe" >"$root.log" 2>&1 ||
  { tail -n 5 "$root.log"; echo "scripts/test bare: no $suite from $mirror" >&2; exit 1; }
grep -i 'cannot check release signature' "$root.log" || true
rm -f "$root.log"
# How to reach the archive (proxies, certificates) is this machine's; which packages there are is the new system's.
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
cp /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"

chmod 755 "$root"
mkdir "$root/chorus"
git ls-files -z | xargs -0 tar -c | tar -x -C "$root/chorus"
chroot "$root" chown -R nobody:nogroup /chorus

# A bare environment, in a locale that isn't installed; proxies go along.
inside() { # user, command
  chroot --userspec="$1" "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=tr_TR.UTF-8 LC_ALL=tr_TR.UTF-8 \
    http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" no_proxy="${no_proxy:-}" bash -c "cd /chorus && $2"
}

say "without root: must stop with the line to type"
for script in test demo; do
  if inside nobody:nogroup "scripts/$script" >"$root/tmp/refused" 2>&1; then
    cat "$root/tmp/refused"
    echo "scripts/$script went on without its packages" >&2
    exit 1
  fi
  grep -q '^  sudo apt-get install --no-install-recommends .*libdnnl-dev' "$root/tmp/refused" || { cat "$root/tmp/refused"; exit 1; }
done
tail -n 2 "$root/tmp/refused" | cut -c 1-150

say "scripts/test"
inside root:root scripts/test
say "scripts/demo $*"
inside root:root "scripts/demo $*"
say "green after $(((SECONDS - begin) / 60)) min $(((SECONDS - begin) % 60)) s, with $(du -sm --one-file-system "$root" | cut -f 1) MiB of disk"
