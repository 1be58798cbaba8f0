# chorus_library(NAME folder DEPENDS ... LINK ...): the library of one folder. The target graph is the folder graph.
# Headers are found as <chorus/folder/x.h> in the build tree (a folder of links) and in the installed tree alike.
set(CHORUS_INCLUDE ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${CHORUS_INCLUDE}/chorus)

# Parsing headers is half of compiling; sources of one target may share it.
function(chorus_compile_together target)
  set(unity OFF)
  if(CHORUS_UNITY STREQUAL "ON" OR target IN_LIST CHORUS_UNITY)
    set(unity ON)
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${unity} UNITY_BUILD_BATCH_SIZE 10)
endfunction()

function(chorus_library folder)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK;SOURCES;EXCLUDE" ${ARGN})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${CHORUS_INCLUDE}/chorus/${folder} SYMBOLIC)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(pattern ${ARG_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX ${pattern})
  endforeach()
  if(NOT sources)  # a folder of headers only
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/headers_only.cpp "")
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/headers_only.cpp)
  endif()
  add_library(chorus_${folder} STATIC ${sources} ${ARG_SOURCES})
  add_library(Chorus::${folder} ALIAS chorus_${folder})
  set_target_properties(chorus_${folder} PROPERTIES EXPORT_NAME ${folder})
  target_compile_features(chorus_${folder} PUBLIC cxx_std_20)
  chorus_compile_together(chorus_${folder})
  target_include_directories(chorus_${folder} PUBLIC
    $<BUILD_INTERFACE:${CHORUS_INCLUDE}> $<INSTALL_INTERFACE:include>)
  target_link_libraries(chorus_${folder} PRIVATE $<BUILD_INTERFACE:chorus_flags>)
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(chorus_${folder} PUBLIC chorus_${dependency})
  endforeach()
  target_link_libraries(chorus_${folder} PRIVATE ${ARG_LINK})
  set_property(GLOBAL APPEND PROPERTY CHORUS_LIBRARIES chorus_${folder})
endfunction()
