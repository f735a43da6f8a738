#!/usr/bin/env python3
"""Prints a dashboard as TypeScript, with the types of @grafana/schema: the compiler then says what Grafana does not know of it.

usage: packaging/verify/dashboard_types.py DASHBOARD
"""

import json
import sys

# Of @grafana/schema, but for enumerations, of which JSON has the values, and options, of which Grafana has defaults; and what it
# leaves to others: queries are their data source's, for Prometheus also those of annotations, and Grafana keeps the text of a
# variable's query beside it.
TYPES = """\
import type { AnnotationQuery, Dashboard, DataQuery, Panel, RowPanel, VariableModel } from "@grafana/schema";
import type { Options as Stat } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type { FieldConfig as Series, Options as TimeSeries } from
    "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

type Plain<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
interface Query extends DataQuery {
    editorMode?: "code";
    expr: string;
    instant?: boolean;
    legendFormat?: string;
    range?: boolean;
}
interface Annotation extends AnnotationQuery {
    expr?: string;
    step?: string;
    textFormat?: string;
    titleFormat?: string;
}
interface Variable extends VariableModel {
    definition?: string;
}
interface Board extends Omit<Dashboard, "annotations" | "panels" | "templating"> {
    annotations: { list: Annotation[] };
    templating: { list: Variable[] };
}
type Of<Options, Fields> =
    Plain<Omit<Panel<Options, Fields>, "options" | "targets"> & { options: Partial<Options>; targets: Query[] }>;
"""
PANELS = {"row": "Plain<RowPanel>", "stat": "Of<Stat, Record<string, never>>", "timeseries": "Of<TimeSeries, Series>"}


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        dashboard = json.load(file)
    panels = dashboard.pop("panels")
    print(TYPES)
    print(f"export const dashboard: Plain<Board> = {json.dumps(dashboard, indent=4)};")
    for panel in panels:
        print(f"export const panel{panel['id']}: {PANELS[panel['type']]} = {json.dumps(panel, indent=4)};")


if __name__ == "__main__":
    main()
