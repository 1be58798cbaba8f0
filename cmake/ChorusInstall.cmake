# Install tree and package: find_package(Chorus) gives Chorus::core ... Chorus::apps.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
get_property(libraries GLOBAL PROPERTY CHORUS_LIBRARIES)
install(TARGETS ${libraries} EXPORT ChorusTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(folder core tensor nn parallel models io apps)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/chorus FILES_MATCHING PATTERN "*.h")
endforeach()
install(EXPORT ChorusTargets NAMESPACE Chorus:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Chorus)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ChorusConfig.cmake.in ${PROJECT_BINARY_DIR}/ChorusConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Chorus)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ChorusConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ChorusConfig.cmake ${PROJECT_BINARY_DIR}/ChorusConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake ${PROJECT_SOURCE_DIR}/cmake/FindSentencePiece.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Chorus)
