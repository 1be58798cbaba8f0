# chorus_target_features(variable): what -march=CHORUS_ARCH lets the compiler use, by the names of /proc/cpuinfo.
function(chorus_target_features variable)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=${CHORUS_ARCH} -dM -E -x c++ /dev/null
    OUTPUT_VARIABLE macros RESULT_VARIABLE failed ERROR_VARIABLE error)
  if(failed)
    message(FATAL_ERROR "CHORUS_ARCH is '${CHORUS_ARCH}', which the compiler refuses as -march: ${error}")
  endif()
  set(names SSE4_2=sse4_2 AVX=avx AVX2=avx2 FMA=fma F16C=f16c BMI=bmi1 BMI2=bmi2 AVXVNNI=avx_vnni
    AVX512F=avx512f AVX512BW=avx512bw AVX512CD=avx512cd AVX512DQ=avx512dq AVX512VL=avx512vl AVX512IFMA=avx512ifma
    AVX512VBMI=avx512vbmi AVX512VBMI2=avx512_vbmi2 AVX512VNNI=avx512_vnni AVX512BITALG=avx512_bitalg
    AVX512VPOPCNTDQ=avx512_vpopcntdq AVX512BF16=avx512_bf16 AVX512FP16=avx512_fp16
    AMX_TILE=amx_tile AMX_BF16=amx_bf16 AMX_INT8=amx_int8)
  set(features "")
  foreach(pair ${names})
    string(REPLACE "=" ";" pair ${pair})
    list(GET pair 0 macro)
    list(GET pair 1 feature)
    if(macros MATCHES "#define __${macro}__ 1\n")
      string(APPEND features "${feature} ")
    endif()
  endforeach()
  set(${variable} "${features}" PARENT_SCOPE)
endfunction()
