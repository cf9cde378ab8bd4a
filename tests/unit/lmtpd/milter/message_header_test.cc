#include "twinloft/lmtpd/milter/message_header.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd::milter {
namespace {

constexpr std::string_view message =
    "Received: from a\r\n"
    "\tby b\r\n"
    "subject:  two blanks\r\n"
    "To:x@y.example\r\n"
    "Received: from c\r\n"
    "\r\n"
    "Not-A-Field: body\r\n";

std::vector<std::string> names(const MessageHeader& header) {
  std::vector<std::string> names;
  for (const auto& field : header.fields()) names.push_back(field.name);
  return names;
}

std::string after(std::string_view text, const auto&... changes) {
  MessageHeader header = MessageHeader::parse(text);
  (header.apply(changes, false), ...);
  return header.text() + std::string(text.substr(header.bytes_in_message()));
}

TEST(MessageHeader, FieldsEndAtTheEmptyLine) {
  MessageHeader header = MessageHeader::parse(message);
  EXPECT_EQ(names(header), (std::vector<std::string>{"Received", "subject", "To", "Received"}));
  EXPECT_EQ(message.substr(header.bytes_in_message()), "Not-A-Field: body\r\n");
  EXPECT_FALSE(header.is_changed());
}

TEST(MessageHeader, ValuesAreAsFiltersExpectThem) {
  MessageHeader header = MessageHeader::parse(message);
  EXPECT_EQ(header.fields()[0].value(false), "from a\n\tby b");
  EXPECT_EQ(header.fields()[0].value(true), " from a\n\tby b");
  EXPECT_EQ(header.fields()[1].value(false), " two blanks") << "one blank belongs to the colon";
  EXPECT_EQ(header.fields()[2].value(false), "x@y.example");
}

TEST(MessageHeader, AnUnchangedHeaderKeepsItsBytes) {
  for (std::string_view text :
       {message, std::string_view("A: b\r\nC: d"), std::string_view("A: b\r\n"), std::string_view(""),
        std::string_view("\r\nbody"), std::string_view("no field\r\n\r\nbody"),
        std::string_view("A: b\r\nno field\r\n"), std::string_view("A: b\n\nbody"),
        std::string_view(" : x\r\n\r\n"), std::string_view("A : old syntax\r\n\r\n")})
    EXPECT_EQ(after(text), text);
}

TEST(MessageHeader, OldSyntaxIsAField) {
  MessageHeader header = MessageHeader::parse("Date : today\r\n\r\n");
  ASSERT_EQ(header.fields().size(), 1u);
  EXPECT_EQ(header.fields()[0].name, "Date");
  EXPECT_EQ(header.fields()[0].value(false), "today");
}

TEST(MessageHeader, AFieldIsAddedBehindTheLastOne) {
  EXPECT_EQ(after("A: b\r\n\r\nbody", AddHeader{"X", "1"}), "A: b\r\nX: 1\r\n\r\nbody");
  EXPECT_EQ(after("\r\nbody", AddHeader{"X", "1"}), "X: 1\r\n\r\nbody");
  EXPECT_EQ(after("A: b", AddHeader{"X", "1"}), "A: b\r\nX: 1\r\n\r\n");
  EXPECT_EQ(after("no field\r\n", AddHeader{"X", "1"}), "X: 1\r\n\r\nno field\r\n");
}

TEST(MessageHeader, AFieldIsInsertedBehindSoManyFields) {
  EXPECT_EQ(after("A: b\r\n\r\n", InsertHeader{0, "X", "1"}), "X: 1\r\nA: b\r\n\r\n");
  EXPECT_EQ(after("A: b\r\n\r\n", InsertHeader{1, "X", "1"}), "A: b\r\nX: 1\r\n\r\n");
  EXPECT_EQ(after("A: b\r\n\r\n", InsertHeader{UINT32_MAX, "X", "1"}), "A: b\r\nX: 1\r\n\r\n");
}

TEST(MessageHeader, AFieldIsChangedByItsNumberAmongThoseOfItsName) {
  EXPECT_EQ(after("A: 1\r\nB: 2\r\na: 3\r\n\r\n", ChangeHeader{2, "A", "new"}),
            "A: 1\r\nB: 2\r\na: new\r\n\r\n");
  EXPECT_EQ(after("A: 1\r\nB: 2\r\na: 3\r\n\r\n", ChangeHeader{1, "a", ""}), "B: 2\r\na: 3\r\n\r\n");
  EXPECT_EQ(after("A: 1\r\n\r\n", ChangeHeader{2, "A", "new"}), "A: 1\r\nA: new\r\n\r\n");
  EXPECT_EQ(after("A: 1\r\n\r\n", ChangeHeader{0, "A", "new"}), "A: new\r\n\r\n") << "0 counts as 1";
  EXPECT_EQ(after("A: 1", ChangeHeader{1, "B", ""}), "A: 1") << "nothing to remove";
}

// smfi_chgheader(3) counts the fields that an earlier change has left.
TEST(MessageHeader, ChangesCountWhatEarlierChangesLeft) {
  EXPECT_EQ(after("A: 1\r\nA: 2\r\nA: 3\r\n\r\n", ChangeHeader{1, "A", ""}, ChangeHeader{1, "A", ""}),
            "A: 3\r\n\r\n");
}

TEST(MessageHeader, TheLinesOfAValueStayInItsField) {
  EXPECT_EQ(after("\r\n", AddHeader{"X", "a\n\tb\r\n c"}), "X: a\r\n\tb\r\n c\r\n\r\n");
  EXPECT_EQ(after("\r\n", AddHeader{"X", "a\nBcc: b"}), "X: a\r\n\tBcc: b\r\n\r\n");
  EXPECT_EQ(after("\r\n", AddHeader{"X", "a\n\nbody"}), "X: a\r\n\t\r\n\tbody\r\n\r\n");
  EXPECT_EQ(after("\r\n", AddHeader{"X", "a\n"}), "X: a\r\n\r\n");
  EXPECT_EQ(after("\r\n", AddHeader{"X", ""}), "X:\r\n\r\n");
}

TEST(MessageHeader, TheFilterMayChooseTheBlankBehindTheColon) {
  MessageHeader header = MessageHeader::parse("\r\n");
  header.apply(AddHeader{"X", "a"}, true);
  header.apply(AddHeader{"Y", "  b"}, true);
  EXPECT_EQ(header.text(), "X:a\r\nY:  b\r\n\r\n");
}

TEST(MessageHeader, ABareCrInAValueIsNoLineEnd) {
  MessageHeader header = MessageHeader::parse("A: b\r\n\r\n");
  header.apply(AddHeader{"X", "a\rBcc: b\r\r\n c"}, false);
  EXPECT_EQ(header.text(), "A: b\r\nX: a Bcc: b \r\n c\r\n\r\n");
}

TEST(MessageHeader, ANewBodyIsBehindAnEmptyLine) {
  using NewBody = MessageHeader::NewBody;
  EXPECT_EQ(MessageHeader::parse("A: b\r\n").text(NewBody::yes), "A: b\r\n\r\n");
  EXPECT_EQ(MessageHeader::parse("A: b").text(NewBody::yes), "A: b\r\n\r\n");
  EXPECT_EQ(MessageHeader::parse("A: b\r\nmalformed\r\n").text(NewBody::yes), "A: b\r\n\r\n");
  EXPECT_EQ(MessageHeader::parse("A: b\r\n\r\n").text(NewBody::yes), "A: b\r\n\r\n");
}

}  // namespace
}  // namespace twinloft::lmtpd::milter
