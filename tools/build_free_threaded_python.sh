#!/usr/bin/env bash
# Build a CPython without the GIL from Debian's source package:
#   tools/build_free_threaded_python.sh PREFIX
# SUITE and PACKAGE choose another one (SUITE=forky PACKAGE=python3.14). The mirror is the machine's
# own; apt works in a folder of its own, so the machine's sources and lists stay as they are. Only
# headers that are missing are installed, which takes root.
set -euo pipefail

[ $# = 1 ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
prefix=$(realpath -m "$1")
suite=${SUITE:-trixie}
package=${PACKAGE:-python3.13}
headers=(build-essential pkg-config xz-utils libbz2-dev libffi-dev liblzma-dev libreadline-dev
         libsqlite3-dev libssl-dev uuid-dev zlib1g-dev)

command -v apt-get >/dev/null || {
  echo "This takes Debian. Elsewhere, set FREE_THREADED_PYTHON to a python3.14t or newer." >&2
  exit 1
}
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -m 1 -E '/debian/?$') || {
  echo "No mirror of Debian among the sources of apt." >&2
  exit 1
}

missing=()
for header in "${headers[@]}"; do
  dpkg-query -W -f '${db:Status-Status}' "$header" 2>/dev/null | grep -qx installed \
    || missing+=("$header")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "-- installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/apt/{etc,lists/partial,cache/archives/partial} "$work"/{download,source}
touch "$work/apt/status"
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" \
  > "$work/apt/etc/sources.list"
cat > "$work/apt/conf" <<CONF
Dir::Etc::sourcelist "$work/apt/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$work/apt/lists";
Dir::State::status "$work/apt/status";
Dir::Cache "$work/apt/cache";
APT::Sandbox::User "";
CONF
echo "-- downloading $package of $suite"
(
  export APT_CONFIG="$work/apt/conf"
  cd "$work/download"
  apt-get update -qq
  apt-get source -qq --download-only "$package" # apt verifies the signature and the checksums
)
tar -xf "$work/download/${package}_"*.orig.tar.?z -C "$work/source" --strip-components=1

quietly() { # COMMAND...: its output is shown if it fails
  "$@" > "$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; return 1; }
}
cd "$work/source"
echo "-- configuring"
quietly ./configure --prefix="$prefix" --disable-gil --disable-test-modules \
  --without-static-libpython --with-ensurepip=install
echo "-- compiling with $(nproc) processors"
quietly make -s -j "$(nproc)"
echo "-- installing into $prefix"
quietly make -s altinstall TESTSUBDIRS=
"$prefix/bin/${package}t" -c 'import bz2, ctypes, lzma, sqlite3, ssl, sys; assert not sys._is_gil_enabled()'
