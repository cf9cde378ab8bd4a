// The directories of a Maildir and of its folders (Maildir++).
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace twinloft::mail {

// A message is written in tmp/, arrives in new/, and is in cur/ once a program has seen it.
inline constexpr std::array<const char*, 3> maildir_boxes = {"cur", "new", "tmp"};

constexpr bool is_maildir_box(std::string_view name) {
  return std::ranges::find(maildir_boxes, name) != maildir_boxes.end();
}

// The empty file that marks a folder.
inline constexpr const char* folder_mark = "maildirfolder";

// A folder is a directory of its Maildir whose name begins with a dot.
constexpr bool is_folder_name(std::string_view name) {
  return name.starts_with('.');
}

}  // namespace twinloft::mail
