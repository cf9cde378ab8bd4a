find_package(Boost 1.81 REQUIRED COMPONENTS program_options)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)
tl_program(lmtpd SOURCES main.cc supervise.cc serve.cc privileges.cc confine.cc check_config.cc dovecot_quota.cc review_rows.cc users.cc
  DEPS tl_lmtpd_net tl_lmtpd_route tl_lmtpd_quota_status tl_lmtpd_connect tl_lmtpd_supervisor tl_lmtpd_config tl_lmtpd_check_command tl_lmtpd_delivery tl_lmtpd_userdb Boost::program_options PkgConfig::SECCOMP)
target_compile_definitions(lmtpd PRIVATE TWINLOFT_VERSION="${PROJECT_VERSION}")
install(TARGETS lmtpd RUNTIME DESTINATION sbin COMPONENT lmtpd)
