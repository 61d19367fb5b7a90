// LINK: pdcSupport
// Diagnostics and the code writer.
#include "pdc/Support/CodeWriter.h"
#include "pdc/Support/Diagnostics.h"

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

TEST(CodeWriter, KeepsTheIndentationOfVariables) {
  CodeWriter out;
  out.write(R"(
    void $phase$(const Kernels& k) {
      $body$
      $nothing$
      done("$$");
    }
  )",
            {{"phase", "forward"}, {"body", "a();\n\nb();\n"}, {"nothing", ""}});
  EXPECT_EQ(out.text(), "void forward(const Kernels& k) {\n  a();\n\n  b();\n  done(\"$\");\n}\n");
}

TEST(CodeWriter, ValuesAreNotExpandedAgain) {
  EXPECT_EQ(expandTemplate("$a$", {{"a", "$b$"}}), "$b$\n");
}

TEST(CodeWriter, IndentsByLevel) {
  CodeWriter out;
  out.line("struct A {");
  out.indent();
  out.write("int $name$;", {{"name", "x"}});
  out.line();
  out.write("// two\n  // deeper\n");
  out.dedent();
  out.line("}; // $not$ replaced");
  EXPECT_EQ(out.text(), "struct A {\n  int x;\n\n  // two\n    // deeper\n}; // $not$ replaced\n");
}

TEST(CodeWriter, EmptyTemplates) {
  CodeWriter out;
  out.write("");
  out.write("$nothing$", {{"nothing", ""}});
  EXPECT_EQ(out.text(), "");
}

TEST(CodeWriterDeathTest, UnknownVariablesAbort) {
  EXPECT_DEATH(expandTemplate("$name$", {}), "unknown variable 'name'");
  EXPECT_DEATH(expandTemplate("5$", {}), "a '\\$' without a second one in '5\\$'");
}
