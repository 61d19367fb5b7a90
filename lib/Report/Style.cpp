// Colours are those of Okabe and Ito, which everybody can tell apart; what matters has a pattern or a label besides.
#include "Sections.h"

using namespace pdc;

std::string pdc::styleSheet() {
  return R"css(
:root { color-scheme: light dark;
  --page: #fbfbfa; --card: #ffffff; --ink: #1c1e21; --dim: #5c6269; --line: #dcdfe3; --faint: #eef0f2;
  --accent: #0072b2;
  --forward: #0072b2; --on-forward: #ffffff; --backward: #e69f00; --on-backward: #1c1400; --weight: #f0e442;
  --on-weight: #2a2600;
  --update: #cc79a7; --team: #d55e00; --reduce: #009e73; --sky: #56b4e9; --grey: #9aa1a9; --bad: #b5400a;
  --hatch: rgba(0,0,0,.34); --wait: #c3c8ce; }
@media (prefers-color-scheme: dark) { :root {
  --page: #15171a; --card: #1d2024; --ink: #e7e9ec; --dim: #a2a9b1; --line: #363b41; --faint: #282c31;
  --accent: #56b4e9;
  --forward: #3f9bd6; --on-forward: #06121b; --backward: #e69f00; --weight: #f0e442; --update: #d692b8;
  --team: #ec7420; --reduce: #1fb88c;
  --sky: #8fd0f5; --grey: #7d858e; --bad: #ff8a4c; --hatch: rgba(0,0,0,.45); --wait: #555c64; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 36px 24px 64px; }
header h1 { margin: 0; font-size: 28px; line-height: 1.2; overflow-wrap: anywhere; }
header p { margin: 6px 0 0; color: var(--dim); overflow-wrap: anywhere; }
h2 { margin: 0 0 4px; font-size: 19px; }
section { margin-top: 44px; }
section > p, .note { margin: 0 0 14px; color: var(--dim); max-width: 86ch; }
.note { font-size: 13px; margin: 8px 0 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(158px, 1fr)); gap: 12px; margin-top: 22px; }
.tile, .stage, .figure { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.tile { padding: 12px 16px; }
.tile b { display: block; font-size: 24px; line-height: 1.25; font-weight: 650; font-variant-numeric: tabular-nums; }
.tile span { display: block; font-size: 13px; color: var(--dim); }
.stage { padding: 14px 18px; }
.stage h3 { margin: 0; font-size: 16px; }
.stage h3 small { font-weight: 400; font-size: 13px; color: var(--dim); margin-left: 8px; }
.stage ul { margin: 6px 0 0; padding: 0; list-style: none; font: 13px/1.6 ui-monospace, "DejaVu Sans Mono", monospace;
  }
.stage li { overflow-wrap: anywhere; padding-left: 14px; text-indent: -14px; }
.stage li::before { content: "· "; color: var(--dim); }
.stage dl { margin: 8px 0 0; display: flex; flex-wrap: wrap; gap: 2px 22px; font-size: 13px; }
.stage dl div { display: flex; gap: 6px; } .stage dt { color: var(--dim); }
.stage dd { margin: 0; font-variant-numeric: tabular-nums; } .stage svg { margin: 8px 0 0; border-radius: 2px; }
summary { cursor: pointer; color: var(--accent); font: 13px system-ui, sans-serif; margin-top: 4px; }
.cut { margin: 0 0 0 30px; padding: 7px 0 7px 16px; border-left: 2px solid var(--grey); font-size: 13px;
  color: var(--dim); overflow-wrap: anywhere; }
.cut b { color: var(--ink); font-weight: 600; }
.cut code, td code { font: 12.5px ui-monospace, "DejaVu Sans Mono", monospace; color: var(--ink);
  overflow-wrap: anywhere; }
.figure { padding: 14px 16px; margin-bottom: 12px; }
.figure h3 { margin: 0 0 6px; font-size: 14px; } .figure h3 small { font-weight: 400; color: var(--dim); }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 12px; fill: var(--ink); }
svg .t { fill: var(--dim); font-size: 11px; } svg .r { font-weight: 600; } svg .bad { fill: var(--bad);
  font-weight: 650; }
svg .grid { stroke: var(--line); stroke-width: 1; } svg .axis { stroke: var(--grey); stroke-width: 1; }
svg .row { fill: var(--faint); } svg .limit { stroke: var(--bad); stroke-width: 2; stroke-dasharray: 5 3; }
svg .n { font-size: 10.5px; pointer-events: none; }
.f { fill: var(--forward); } .nf { fill: var(--on-forward); } .b, .i { fill: var(--backward); }
  .nb, .ni { fill: var(--on-backward); }
.w { fill: var(--weight); } .nw { fill: var(--on-weight); } .u { fill: var(--update); } .nu { fill: #2a0c1c; }
  .m { fill: var(--team); }
  .mh { fill: var(--team); opacity: .6; }
  .e { fill: var(--sky); } .ne { fill: #06121b; }
.a { fill: var(--reduce); } .sf { fill: var(--forward); } .sb { fill: var(--backward); } .sv { fill: var(--grey); }
.wait { fill: url(#wait); } .hatch { fill: url(#hatch); } .dots { fill: url(#dots); } .cross { fill: url(#cross); }
  .lines { fill: url(#lines); }
.m-weights { fill: var(--forward); } .m-optimizer { fill: var(--sky); } .m-versions { fill: var(--update); }
  .m-stash { fill: var(--backward); }
.m-gradients { fill: var(--reduce); } .m-buffers { fill: var(--weight); } .m-workspace { fill: var(--grey); }
.p-0 { fill: var(--forward); } .p-1 { fill: var(--sky); } .p-2 { fill: var(--backward); } .p-3 { fill: var(--reduce);
  }
.p-4 { fill: var(--wait); } .p-5 { fill: var(--update); } .p-6 { fill: var(--grey); }
.curve { fill: none; stroke: var(--forward); stroke-width: 2; stroke-linejoin: round; } .band { fill: var(--forward);
  opacity: .22; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 12.5px; color: var(--dim); margin: 0 0 10px; }
.legend span { display: inline-flex; align-items: center; gap: 6px; } .legend svg { width: 14px; height: 14px;
  flex: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; color: var(--dim); padding: 4px 10px; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
td { text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--faint); white-space: nowrap; }
th.l, td.l { text-align: left; white-space: normal; } tr.sum td { font-weight: 650; border-top: 1px solid var(--line);
  }
footer { margin-top: 48px; font-size: 12.5px; color: var(--dim); overflow-wrap: anywhere; }
@media (max-width: 760px) { main { padding: 20px 12px 40px; } }
@media print { body { background: #fff; } section { break-inside: avoid; } }
)css";
}

std::string pdc::sharedDefinitions() {
  return R"css(<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>
<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
  <path d="M0 0V6" style="stroke:var(--hatch)" stroke-width="3"/></pattern>
<pattern id="cross" width="6" height="6" patternUnits="userSpaceOnUse">
  <path d="M0 0L6 6M6 0L0 6" style="stroke:var(--hatch)" stroke-width="1.2"/></pattern>
<pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse">
  <circle cx="3" cy="3" r="1.4" style="fill:var(--hatch)"/></pattern>
<pattern id="lines" width="5" height="5" patternUnits="userSpaceOnUse">
  <path d="M0 1H5" style="stroke:var(--hatch)" stroke-width="1.5"/></pattern>
<pattern id="wait" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
  <path d="M0 0V5" style="stroke:var(--wait)" stroke-width="1.6"/></pattern>
</defs></svg>
)css";
}
