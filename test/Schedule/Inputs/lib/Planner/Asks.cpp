// Questions, and below them what is allowed.
if (plan.schedule == "gpipe") return;
if ("2bw" != options.schedule) return;
if (plan.schedule.name() == text || schedule->name == "mine") return;
if (kind.starts_with("interleaved:")) return;
if (options.weights == std::string("latest") || options.sync != "overlap") return;
if (options.recompute == "auto") return;
plan.schedule = "gpipe"; // plan.schedule == "gpipe"
if (metric != "none" || profile == "auto") return;
app.add_option("--weights", weights)->check(CLI::IsMember({"stash", "vertical-sync", "latest"}));
if (options.schedule->flushes && options.sync == SyncPolicy::overlap) return;
