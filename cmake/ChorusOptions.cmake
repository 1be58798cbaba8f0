# Language, optimisation, sanitizers, and the choice of optional parts. Everything chosen is printed.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CHORUS_CCACHE ccache)
if(CHORUS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CHORUS_CCACHE})
endif()

# Flags of the project's own sources; consumers of the installed package get none of them.
add_library(chorus_flags INTERFACE)
target_compile_options(chorus_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-psabi $<$<BOOL:${CHORUS_WERROR}>:-Werror>>
  $<$<COMPILE_LANGUAGE:CXX>:-march=${CHORUS_ARCH} -fno-math-errno -fno-trapping-math>)
target_compile_options(chorus_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra $<$<BOOL:${CHORUS_WERROR}>:-Werror=all-warnings>>)
# Eigen's blocking, and with it the last bits of its products, would depend on its number of threads.
target_compile_definitions(chorus_flags INTERFACE EIGEN_DONT_PARALLELIZE)
# Where sources are compiled together, types of an unnamed namespace look as if they came from a header.
target_compile_options(chorus_flags INTERFACE
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wno-subobject-linkage>)
# A program that uses nothing of MPI doesn't load it, although the library that it links to offers it.
target_link_options(chorus_flags INTERFACE LINKER:--as-needed)
if(CHORUS_SANITIZE)
  # GCC's flow warnings are unreliable in instrumented code: its own vector headers and Eigen's draw them.
  target_compile_options(chorus_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${CHORUS_SANITIZE} -fno-omit-frame-pointer
    -Wno-uninitialized -Wno-maybe-uninitialized>)
  target_link_options(chorus_flags INTERFACE -fsanitize=${CHORUS_SANITIZE})
endif()

find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)

# CUDA: one folder of sources, or one file of stubs.
if(NOT CHORUS_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "CHORUS_CUDA is '${CHORUS_CUDA}'; it takes AUTO, ON or OFF")
endif()
set(CHORUS_CUDA_BUILT OFF)
if(NOT CHORUS_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cublasLt AND NOT CHORUS_SANITIZE)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90)
    endif()
    if(NOT CMAKE_CUDA_COMPILER)  # nvcc need not be on PATH
      set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH "CUDA compiler")
    endif()
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # one runtime in a process, the one that cuBLAS uses
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 doesn't know that nvcc 12 has it
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # the installed program finds the libraries of the toolkit where this build did
    set(CHORUS_CUDA_BUILT ON)
  elseif(CHORUS_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CHORUS_CUDA=ON needs a CUDA toolkit with nvcc and cuBLASLt, and a build without sanitizers; toolkit: "
      "'${CUDAToolkit_ROOT}${CUDAToolkit_LIBRARY_ROOT}', nvcc: '${CUDAToolkit_NVCC_EXECUTABLE}', sanitizers: '${CHORUS_SANITIZE}'")
  endif()
endif()

message(STATUS "Chorus: CUDA ${CHORUS_CUDA} -> ${CHORUS_CUDA_BUILT}, march ${CHORUS_ARCH}, build ${CMAKE_BUILD_TYPE}"
  ", sanitizers '${CHORUS_SANITIZE}', ccache ${CHORUS_CCACHE}")
