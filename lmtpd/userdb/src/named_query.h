// Converts a query with named parameters (:user, :domain, :address) for servers that support only "?".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

enum class QueryParameter { user, domain, address };

struct NamedQuery {
  std::string text;                        // with "?"
  std::vector<QueryParameter> parameters;  // in the order of the "?"
};

// Leaves strings ('...', "...", with doubled quotes or backslashes), `names` and comments (-- , #, /* */)
// unchanged. Errors: an unknown parameter, a "?", no parameter at all, a string without an end, and "*" for
// all columns.
//
// "*" is refused because a server prepares the query again after a change of the table. The client library
// keeps the old column names, so it would return values under wrong names.
Result<NamedQuery> parse_named_query(std::string_view text);

// For messages: replaces line ends and the blanks around them by one blank.
std::string one_line(std::string_view query);

std::string value_of(QueryParameter parameter, const UserKey& key);

}  // namespace twinloft::lmtpd
