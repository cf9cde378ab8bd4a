# Puts the units where systemd finds them (PREFIX/lib is searched for /usr and /usr/local), with the real paths of programs
# and documents. In: sbin, data (as CMAKE_INSTALL_SBINDIR, _DATADIR), units (their folder), out (a folder of the build tree).
foreach(path sbin data)
  cmake_path(ABSOLUTE_PATH ${path} BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" NORMALIZE)
endforeach()
file(GLOB files RELATIVE "${units}" "${units}/*.service" "${units}/*.socket" "${units}/*.mount" "${units}/*.path" "${units}/*.target" "${units}/lmtpd.*.d/*.conf")
file(REMOVE_RECURSE "${out}")
foreach(file IN LISTS files)
  file(READ "${units}/${file}" text)
  string(REPLACE "/usr/local/sbin/" "${sbin}/" text "${text}")
  string(REPLACE "/usr/local/share/" "${data}/" text "${text}")
  cmake_path(GET file PARENT_PATH folder)  # of a drop-in
  file(WRITE "${out}/${file}" "${text}")
  file(INSTALL "${out}/${file}" DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/systemd/system/${folder}")
endforeach()
file(INSTALL "${units}/twinloft.conf" DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/tmpfiles.d")
