# Included by lmtpd/config; paths are this file's, wherever it is included from.
if(TARGET tl_lmtpd_check_command)
  return()
endif()
add_library(tl_lmtpd_check_command STATIC ${CMAKE_CURRENT_LIST_DIR}/src/check_command.cc)
target_include_directories(tl_lmtpd_check_command PUBLIC ${CMAKE_CURRENT_LIST_DIR}/include)
target_link_libraries(tl_lmtpd_check_command PUBLIC tl_base PRIVATE tl_argv tl_options)
