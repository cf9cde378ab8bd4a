# Helpers that every folder's CMakeLists.txt uses.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

add_library(tl_options INTERFACE)
target_compile_options(tl_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wcast-qual -Wundef -fno-omit-frame-pointer
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>
  # g++ 12 reports std::string internals under -O2 (GCC bugs 105329, 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # libstdc++ 12 uses a deprecated function of its own for stable_partition: clang names it as an error of ours.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
if(TWINLOFT_WERROR)
  target_compile_options(tl_options INTERFACE -Werror)
endif()
# Several files of a unit test are compiled as one, so that a header is compiled less often; in the presets debug and tsan those of all
# targets. Names of one file's own namespace are then visible in the next file. The release build compiles each other file alone,
# with these warnings.
set(tl_files_at_once 6)
add_library(tl_unity_options INTERFACE)  # linked after tl_options, so that they count
target_compile_options(tl_unity_options INTERFACE -Wno-shadow $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
if(CMAKE_UNITY_BUILD)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE ${tl_files_at_once})
  target_compile_options(tl_options INTERFACE $<TARGET_PROPERTY:tl_unity_options,INTERFACE_COMPILE_OPTIONS>)
endif()
if(TWINLOFT_SANITIZE)
  target_compile_options(tl_options INTERFACE -fsanitize=${TWINLOFT_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(tl_options INTERFACE -fsanitize=${TWINLOFT_SANITIZE})
else()
  target_compile_definitions(tl_options INTERFACE $<$<NOT:$<CONFIG:Debug>>:_FORTIFY_SOURCE=2>)
endif()

# The address sanitizer reports uses of null pointers and accesses beyond an object too. Such checks of the other sanitizer, and that of the
# alignment, take two fifths of the compiler's time for a test. Libraries keep them.
add_library(tl_test_options INTERFACE)  # linked after tl_options
if(TWINLOFT_SANITIZE MATCHES "address.*undefined")
  target_compile_options(tl_test_options INTERFACE -fno-sanitize=null,alignment,object-size)
endif()

# tl_library(<target> SOURCES ... DEPS ... PRIVATE_DEPS ...)
# The folder's public headers are in include/twinloft/<folder>/.
function(tl_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(A_SOURCES)
    add_library(${name} STATIC ${A_SOURCES})
    target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
    target_link_libraries(${name} PUBLIC ${A_DEPS} PRIVATE ${A_PRIVATE_DEPS} tl_options)
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/include)
    target_link_libraries(${name} INTERFACE ${A_DEPS})
  endif()
endfunction()

# tl_program(<target> SOURCES ... DEPS ...)
function(tl_program name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ${A_DEPS} tl_options)
endfunction()

# tl_built_for_unit_tests(<target> ...): what `ctest -L unit` runs, and no more, is the target unit_tests.
add_custom_target(unit_tests)
function(tl_built_for_unit_tests)
  add_dependencies(unit_tests ${ARGN})
endfunction()

# tl_unit_test(<name> SOURCES ... DEPS ...): a GoogleTest program, known to ctest.
function(tl_unit_test name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ${A_DEPS} GTest::gtest GTest::gtest_main tl_options tl_unity_options tl_test_options)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${tl_files_at_once})
  add_test(NAME ${name} COMMAND ${name})
  # A test that skips proves nothing, and counts as failed. The bound is for what hangs: the slowest takes four minutes under sanitizers.
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 1200 FAIL_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  tl_built_for_unit_tests(${name})
endfunction()

# Boost 1.81: Debian's default is 1.74; the -dev packages exclude each other, so what is found is 1.81.
find_package(Boost 1.81 REQUIRED)
pkg_check_modules(fmt REQUIRED IMPORTED_TARGET fmt)
