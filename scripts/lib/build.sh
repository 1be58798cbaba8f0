# Configuring and building. Sourced by the scripts beside this folder, after packages.sh.

# Configures build/PRESET and prints what was chosen. A new folder is compiled in large units, which takes half the time; one that is
# there is left as it is (after cmake --preset release, a change compiles single files).
configure() { # preset, options of CMake
  local new=()
  mkdir -p build
  [[ -e build/$1/CMakeCache.txt ]] || new=(-DCHORUS_UNITY=ON)
  cmake --preset "$1" "${new[@]}" "${@:2}" >"build/$1.configure" 2>&1 || { cat "build/$1.configure"; return 1; }
  grep '^-- Chorus:' "build/$1.configure"
}

build() { # preset, targets
  ninja -C "build/$1" -j "$(nproc)" --quiet "${@:2}"
}
