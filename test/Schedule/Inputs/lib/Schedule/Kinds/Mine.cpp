if (name == "2bw") return;
