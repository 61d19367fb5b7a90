// Four questions, and below them what is allowed.
if (operation.def().name == "relu") return;
if ("conv2d" != def->name) return;
if (operation.def().name.starts_with("conv")) return;
if (&operation.def() == registry.find("add")) return;
Value* sum = builder.value("add", {a, b}); // operation.def().name == "add"
diags.error(where) << "'" << operation.def().name << "' op has no gradient";
