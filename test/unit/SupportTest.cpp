// LINK: pdcSupport
// Diagnostics, units and misspelt names.
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Names.h"
#include "pdc/Support/Units.h"

#include <gtest/gtest.h>

#include <sstream>

using namespace pdc;

TEST(Diagnostics, TextForm) {
  std::ostringstream out;
  Diagnostics diags(&out);
  diags.error({.file = "resnet.onnx", .node = "conv2"}).note("a note").help("a remedy") << "needs " << 61.5 << " GiB";
  diags.warning({.file = "a.pdir", .node = "Conv_0", .line = 3, .column = 5}) << "odd";
  diags.remark({}) << "by the way";
  EXPECT_EQ(out.str(), "resnet.onnx:conv2: error: needs 61.5 GiB\nnote: a note\nhelp: a remedy\n"
                       "a.pdir:3:5: warning: odd\nremark: by the way\n");
}

TEST(Diagnostics, JsonFormIsOneObjectPerLineWhateverTheBytes) {
  std::ostringstream out;
  Diagnostics diags(&out, Diagnostics::Format::json);
  diags.error({.file = "a\xff", .node = "n\n"}) << "\"quoted\"";
  EXPECT_EQ(out.str(), "{\"severity\":\"error\",\"file\":\"a\xEF\xBF\xBD\",\"node\":\"n\\n\",\"line\":0,\"column\":0,"
                       "\"message\":\"\\\"quoted\\\"\",\"notes\":[],\"helps\":[]}\n");
}

TEST(Diagnostics, ExitCodeIsThatOfTheFirstError) {
  Diagnostics diags(nullptr);
  EXPECT_EQ(diags.exitCode(), ExitCode::done);
  diags.warning({}) << "not an error";
  EXPECT_EQ(diags.exitCode(), ExitCode::done);
  EXPECT_FALSE(diags.hasErrors());
  diags.error({}).exit(ExitCode::unsupported) << "first";
  diags.error({}) << "second";
  EXPECT_EQ(diags.exitCode(), ExitCode::unsupported);
  EXPECT_TRUE(diags.hasErrors());
}

TEST(Diagnostics, AnErrorIsAFailure) {
  Diagnostics diags(nullptr);
  auto fails = [&]() -> Expected<int> { return diags.error({}) << "no"; };
  EXPECT_FALSE(fails());
  EXPECT_EQ(diags.all().at(0).message, "no");
}

TEST(Units, SizesArePrintedInTheLargestUnitThatIsNotAFraction) {
  EXPECT_EQ(sizeText(0), "0 bytes");
  EXPECT_EQ(sizeText(1023), "1023 bytes");
  EXPECT_EQ(sizeText(1024), "1.0 KiB");
  EXPECT_EQ(sizeText(12595), "12.3 KiB");
  EXPECT_EQ(sizeText(std::int64_t{40} << 30), "40.0 GiB");
  EXPECT_EQ(sizeText(std::int64_t{5000} << 40), "5000.0 TiB");
}

TEST(Names, AMisspellingIsNearTheNameThatWasMeant) {
  const std::vector<std::string_view> known = {"forward_ms", "parameter_bytes", "parameters", "to"};
  EXPECT_EQ(nearestName("parameter_byte", known), "parameter_bytes");
  EXPECT_EQ(nearestName("ParameterBytes", known), "parameter_bytes");
  EXPECT_EQ(nearestName("paramter-bytes", known), "parameter_bytes");
  EXPECT_EQ(nearestName("froward_ms", known), "forward_ms") << "neighbours swapped";
  EXPECT_EQ(nearestName("forwards", known), "forward_ms");
  EXPECT_EQ(nearestName("remark", known), "");
  EXPECT_EQ(nearestName("at", known), "") << "in a short name every change makes another one";
  EXPECT_EQ(nearestName(std::string(100000, 'x'), known), "");
  EXPECT_EQ(nearestName("", known), "");
}

TEST(Names, HelpNamesOneNameOrAll) {
  EXPECT_EQ(helpForUnknown("forward", {"forward_ms", "bytes"}), "did you mean 'forward_ms'?");
  EXPECT_EQ(helpForUnknown("remark", {"forward_ms", "bytes"}), "known here: forward_ms, bytes");
}
