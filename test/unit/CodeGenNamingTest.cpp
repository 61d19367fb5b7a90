// LINK: pdcCodeGen
// Names of a model in generated text.
#include "pdc/CodeGen/Naming.h"

#include <gtest/gtest.h>

using namespace pdc;

TEST(CodeGenNaming, IdentifiersAreLegalAndDifferent) {
  Identifiers names;
  EXPECT_EQ(names.unique("fc1.weight"), "fc1_weight");
  EXPECT_EQ(names.unique("fc1/weight"), "fc1_weight_2");
  EXPECT_EQ(names.unique("class"), "class_2");
  EXPECT_EQ(names.unique("3"), "n3");
  EXPECT_EQ(names.unique(""), "value");
  EXPECT_EQ(names.unique("__a__b__"), "a_b"); // "__" is reserved
  EXPECT_EQ(names.unique("größe"), "gr_e");
  EXPECT_LE(names.unique(std::string(500, 'x')).size(), 60U);
}

TEST(CodeGenNaming, CommentsStayOnTheirLine) {
  EXPECT_EQ(commentText("a\nb"), "a%0ab");
  EXPECT_EQ(commentText("ends in \\"), "ends in %5c"); // a backslash would make the next line a comment
  EXPECT_EQ(commentText("/layer1/Conv"), "/layer1/Conv");
}

TEST(CodeGenNaming, PartsAreInitializers) {
  EXPECT_EQ(partText({.axis = 1, .blocks = 3, .of = 2, .wholeSize = 2304}),
            "{.axis = 1, .blocks = 3, .of = 2, .wholeSize = 2304}");
  EXPECT_EQ(partText({.axis = 0, .of = 2, .wholeSize = 4}, "order0"),
            "{.axis = 0, .blocks = 1, .of = 2, .wholeSize = 4, .order = order0}");
}

TEST(CodeGenNaming, StringsReadBack) {
  EXPECT_EQ(stringLiteral("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(stringLiteral("\n1"), "\"\\0121\"");
  EXPECT_EQ(stringLiteral("what?\?/"), "\"what\\?\\?/\"");
}
