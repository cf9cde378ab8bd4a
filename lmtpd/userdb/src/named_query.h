// A query with named parameters (:user, :domain, :address) as servers want it that know "?" only.
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

// Leaves strings ('...', "...", with doubled quotes or backslashes), `names` and comments (-- , #, /* */) as
// they are. Errors: an unknown parameter, a "?", none at all, a string that does not end, and "*" for all
// columns: a server prepares such a query anew when the table has changed, and the client's library goes on
// with the names of before, and would mistake one column's value for another's.
Result<NamedQuery> parse_named_query(std::string_view text);

// For messages: line ends and what surrounds them are one blank.
std::string one_line(std::string_view query);

std::string value_of(QueryParameter parameter, const UserKey& key);

}  // namespace twinloft::lmtpd
