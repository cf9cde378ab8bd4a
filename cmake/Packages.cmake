# Debian packages of the tools that need nothing else of this project: mailbench and lmtp-conform. `cpack` in the build folder writes
# them.

find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  set(conform ${CMAKE_SOURCE_DIR}/tests/conform)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${conform}/*.py ${conform}/lmtp-conform ${conform}/pack)
  add_custom_command(OUTPUT ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/lmtp-conform
    COMMAND ${Python3_EXECUTABLE} ${conform}/pack --output ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/lmtp-conform
    DEPENDS ${sources} COMMENT "Packing lmtp-conform" VERBATIM)
  add_custom_target(lmtp-conform ALL DEPENDS ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/lmtp-conform)
  install(PROGRAMS ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/lmtp-conform TYPE BIN COMPONENT lmtp-conform OPTIONAL)  # a build of some targets has none
  install(FILES docs/lmtp-conform.md DESTINATION share/doc/lmtp-conform COMPONENT lmtp-conform)
endif()
install(FILES docs/mailbench.md docs/formats/mailbench-account.md DESTINATION share/doc/mailbench COMPONENT mailbench)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME twinloft)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The developers of Twinloft")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL mailbench)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION mail)
set(CPACK_DEBIAN_MAILBENCH_PACKAGE_NAME mailbench)
set(CPACK_DEBIAN_MAILBENCH_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_MAILBENCH_DESCRIPTION "load generator for LMTP and SMTP servers, and verifier of delivered mail
mailbench measures messages per minute and latencies, and proves that every
acknowledged message is stored, whole and once.")
if(Python3_FOUND)
  list(APPEND CPACK_COMPONENTS_ALL lmtp-conform)
  set(CPACK_DEBIAN_LMTP-CONFORM_PACKAGE_NAME lmtp-conform)
  set(CPACK_DEBIAN_LMTP-CONFORM_PACKAGE_ARCHITECTURE all)
  set(CPACK_DEBIAN_LMTP-CONFORM_PACKAGE_DEPENDS "python3 (>= 3.9)")
  set(CPACK_COMPONENT_LMTP-CONFORM_DESCRIPTION "checks of an LMTP server against the RFCs
lmtp-conform is a client that tests any LMTP server, over TCP or a Unix
socket, with a check for each requirement.")
endif()
include(CPack)
