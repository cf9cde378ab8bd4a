// TLS of the kernel for what a TCP connection sends (Documentation/networking/tls.rst, linux/tls.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/stream/record_key.h"

namespace twinloft::repl::stream {

// Whether the kernel encrypts with this cipher, and can change the key of a connection, which Linux does from
// 6.14 on. Tried on a connection of this process to itself over loopback, which takes up to 0.2 s, until the
// kernel has given an answer for this cipher. Thread-safe. Errors: the reason.
Status kernel_has_tls(RecordCipher cipher);

// What the connection sends from now on is in records, from number 0 on. The first call needs a connection
// that is established, the next ones a KeyUpdate as the last record. Errors: that of the kernel.
Status give_key_to_kernel(int socket, const RecordKey& key);

// Sends one record of this type, without waiting. False: there is no room at present. Errors: that of the
// kernel.
Result<bool> send_record(int socket, std::uint8_t type, std::span<const std::byte> content);

}  // namespace twinloft::repl::stream
