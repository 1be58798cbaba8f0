# The CUDA kernels, or one file that says they are not there.
if(CHORUS_CUDA_BUILT)
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/*.cu)
  target_sources(chorus_tensor PRIVATE ${cuda_sources})
  target_link_libraries(chorus_tensor PRIVATE CUDA::cudart CUDA::cublasLt)
else()
  target_sources(chorus_tensor PRIVATE kernels/cuda/no_cuda.cpp)
endif()
