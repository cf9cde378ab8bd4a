#include "spool.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "twinloft/base/check.h"

namespace twinloft::repl::salvage {

namespace fs = std::filesystem;

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  TL_CHECK(out);
}

TemporaryDirectory::TemporaryDirectory() : path_((fs::temp_directory_path() / "tlsalvage.XXXXXX").string()) {
  TL_CHECK(::mkdtemp(path_.data()) != nullptr);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string message(const std::string& subject, const std::string& user, const std::string& delivery) {
  return fmt::format(
      "Return-Path: <from@example.net>\nDelivered-To: {0}\nReceived: from mx ([127.0.0.1])\n\tby mail{1} "
      "with LMTP id {1}\n"
      "\tfor <{0}>; Sat, 21 Nov 2026 05:00:0{1} +0000\nReceived: from far (far [192.0.2.1])\n\tby mx "
      "(Postfix) with ESMTPS id 7F\n"
      "Subject: {2}\n\n.The text of {2}\n",
      user, delivery, subject);
}

std::string late(const std::string& subject, const std::string& user, const std::string& delivery) {
  return message(subject, user, delivery) + "written after the parting\n";
}

Result<bool> written_after(int fd) {
  std::string text(1 << 16, '\0');
  ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  if (n < 0) return fail_errno(errno, "pread");
  text.resize(static_cast<std::size_t>(n));
  return text.find("written after the parting") != text.npos;
}

Spool::Spool() {
  put(".twinloft-spool", std::string(volume_text) + "\n");
  make_maildir(ann);
  make_maildir(bob);
}

Fd Spool::open() const {
  Fd fd(::open(root().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  TL_CHECK(fd);
  return fd;
}

void Spool::make_maildir(const std::string& path) const {
  for (const char* name : {"cur", "new", "tmp"}) fs::create_directories(fs::path(directory_ / path) / name);
}

std::vector<std::string> Spool::find(const std::string& text) const {
  std::vector<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(root())) {
    std::string box = entry.path().parent_path().filename();
    if ((box == "new" || box == "cur") && entry.is_regular_file() &&
        read(entry.path()).find(text) != std::string::npos)
      out.push_back(fs::relative(entry.path(), root()));
  }
  std::sort(out.begin(), out.end());
  return out;
}

ExtractOptions options_for(const std::string& bundle) {
  ExtractOptions options;
  options.layouts = {"%d/%n/Maildir"};
  options.bundle = bundle;
  options.volume = Uuid::parse(volume_text).value();
  options.parting = {2, 48211, 3, Uuid::parse("11111111-2222-4333-8444-555555555555").value()};
  return options;
}

ExtractReport extract_from(const Spool& loser, const std::string& bundle) {
  auto done = extract(loser.open().get(), options_for(bundle), written_after, {});
  EXPECT_TRUE(done) << done.error().message;
  return done.value_or(ExtractReport{});
}

std::string text_of(const std::vector<ExtractProblem>& problems) {
  std::string out;
  for (const ExtractProblem& p : problems) out += p.path + ": " + p.what + "\n";
  return out;
}

Bundle open_bundle(const std::string& path) {
  auto bundle = Bundle::open(path);
  TL_CHECK_MSG(bundle.has_value(), bundle ? "" : bundle.error().message.c_str());
  return std::move(*bundle);
}

}  // namespace twinloft::repl::salvage
