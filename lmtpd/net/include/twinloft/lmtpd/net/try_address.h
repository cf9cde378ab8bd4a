// Whether a server could listen at an address, found out without listening there.
#pragma once

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/net/listener.h"

namespace twinloft::lmtpd {

enum class AddressState {
  free,
  in_use,  // something listens there, maybe this server itself
};

// Errors: nobody can listen there: an address that this machine has not, a directory that is missing, a path that is no
// socket. Makes and removes nothing.
Result<AddressState> try_address(const ListenAddress& address);

}  // namespace twinloft::lmtpd
