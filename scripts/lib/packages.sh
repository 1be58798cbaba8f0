# Debian and Ubuntu packages that building and testing need. Sourced by the scripts beside this folder.
chorus_packages=(g++ cmake ninja-build ccache pkg-config libgomp1 libdnnl-dev libeigen3-dev libhdf5-dev libxxhash-dev zlib1g-dev libtomlplusplus-dev
  libcli11-dev libfmt-dev nlohmann-json3-dev libsndfile1-dev libsoxr-dev libsentencepiece-dev libutf8proc-dev libgtest-dev libgmock-dev librapidcheck-dev
  libopenmpi-dev openmpi-bin libmpich-dev mpich libbenchmark-dev asterisk-core-sounds-en asterisk-core-sounds-en-wav)

# A program's answer must not depend on the user's locale, and one that isn't installed makes perl and apt complain.
export LC_ALL=C.UTF-8

# Installs what is missing of chorus_packages and of the arguments; without the right to do so, says how and stops.
install_packages() {
  local wanted=("${chorus_packages[@]}" "$@") missing=() package as_root=()
  command -v dpkg-query >/dev/null || { echo "not a Debian system: make sure that the equivalents of these are there: ${wanted[*]}"; return 0; }
  for package in "${wanted[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  if ((${#missing[@]})); then
    if ((EUID != 0)); then
      # A password can be asked for on a terminal only.
      if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 && -t 2 ]]; }; then
        as_root=(sudo)
      else
        echo "missing packages; install them with:" >&2
        echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
      fi
    fi
    echo "installing ${missing[*]}"
    apt_get() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get -qq "$@"; }
    apt_get update
    apt_get install -y --no-install-recommends "${missing[@]}" >/dev/null
  fi
  echo "found $(system_name), $(g++ --version | head -n 1), CMake $(cmake --version | awk 'NR == 1 {print $3}'), oneDNN $(version libdnnl-dev)," \
    "HDF5 $(version libhdf5-dev), $(nproc) cores, $(awk '/MemTotal/ {printf "%.0f", $2 / 1048576}' /proc/meminfo) GiB," \
    "CUDA $(nvcc_version)"
}

system_name() { (source /etc/os-release && echo "$PRETTY_NAME"); }
version() { dpkg-query -W -f '${Version}' "$1" | sed 's/-[^-]*$//'; }
nvcc_version() { command -v nvcc >/dev/null && nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p' || echo "absent"; }

# Prints the path of a packaged file. Minimal installations leave /usr/share/doc out: then it is taken from the package again.
packaged_file() { # package, path
  [[ -e $2 ]] && { echo "$2"; return; }
  local folder=build/packaged/$1
  if [[ ! -e $folder$2 ]]; then
    mkdir -p "$folder"
    (cd "$folder" && apt-get download -qq "$1" >&2 && for deb in ./"$1"_*.deb; do dpkg -x "$deb" .; done)
  fi
  [[ -e $folder$2 ]] || { echo "package $1 has no $2" >&2; return 1; }
  echo "$folder$2"
}

# Paths relative to the checkout: a second checkout elsewhere finds what the first one compiled.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
