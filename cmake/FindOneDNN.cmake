# oneDNN as OneDNN::dnnl, from its header and library alone: Debian's own package file insists on OpenCL development files, which
# only its GPU part uses.
find_path(OneDNN_INCLUDE_DIR NAMES oneapi/dnnl/dnnl.hpp)
find_library(OneDNN_LIBRARY NAMES dnnl)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR)
if(OneDNN_FOUND AND NOT TARGET OneDNN::dnnl)
  add_library(OneDNN::dnnl UNKNOWN IMPORTED)
  set_target_properties(OneDNN::dnnl PROPERTIES
    IMPORTED_LOCATION ${OneDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${OneDNN_INCLUDE_DIR})
endif()
