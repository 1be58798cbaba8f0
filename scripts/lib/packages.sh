# Debian packages that building and testing need. Sourced by the scripts beside this folder.
chorus_packages=(g++ cmake ninja-build ccache pkg-config libgomp1 libdnnl-dev libeigen3-dev libhdf5-dev libxxhash-dev libtomlplusplus-dev
  libcli11-dev libfmt-dev nlohmann-json3-dev libsndfile1-dev libsoxr-dev libsentencepiece-dev libgtest-dev libgmock-dev librapidcheck-dev
  libbenchmark-dev asterisk-core-sounds-en asterisk-core-sounds-en-wav)

# Installs what is missing; without the right to do so, says how and stops.
install_packages() {
  command -v dpkg-query >/dev/null || { echo "not a Debian system: make sure that the equivalents of these are there: ${chorus_packages[*]}"; return 0; }
  local missing=() package
  for package in "${chorus_packages[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    echo "missing packages; install them with:" >&2
    echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Paths relative to the checkout: a second checkout elsewhere finds what the first one compiled.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
