//! Formats `/clients` as a table of text. Pure.

use super::status::{bytes_text, grouped_number, strip_controls};
use litequic_admin::{ClientList, ClientStatus};

/// Names of the columns.
const COLUMNS: [&str; 10] =
    ["CLIENT", "PROTOCOL", "SINCE", "OPEN", "SENT/S", "SENT", "RECEIVED", "RTT", "LOSS", "PACKETS/ACK"];
/// Number of columns that are aligned left.
const LEFT_COLUMNS: usize = 2;
/// Text for a value that is unknown, or that the connection does not have.
const UNKNOWN: &str = "-";

/// Formats the table, and a line with the sums.
pub(super) fn render_clients(list: &ClientList) -> String {
    let rows: Vec<[String; 10]> = list.clients.iter().map(client_row).collect();
    let widths = COLUMNS.iter().enumerate().map(|(column, name)| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([name.len()]).max().unwrap_or_default()
    });
    let widths: Vec<usize> = widths.collect();
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            ..LEFT_COLUMNS => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let head = line(&COLUMNS.map(str::to_owned));
    head + &rows.iter().map(|row| line(row)).collect::<String>() + &sums_line(list)
}

fn sums_line(list: &ClientList) -> String {
    let number = |count: Option<u64>| count.map_or(UNKNOWN.into(), grouped_number);
    let mut line = format!("{} of {} connections", list.clients.len(), number(list.selected));
    if list.selected != list.connections {
        line += &format!(" that are selected, of {} in all", number(list.connections));
    }
    if let Some(handshakes) = list.handshakes.filter(|handshakes| *handshakes > 0) {
        line += &format!(" ({} in a handshake)", grouped_number(handshakes));
    }
    line.push('\n');
    match list.older_processes {
        Some(1) => line + "an older process drains: its connections are not in the list\n",
        Some(older @ 2..) => line + &format!("{older} older processes drain: their connections are not in the list\n"),
        Some(0) | None => line,
    }
}

fn client_row(client: &ClientStatus) -> [String; 10] {
    let text = |text: &Option<String>| text.as_deref().map_or(UNKNOWN.into(), strip_controls);
    let size = |size: Option<u64>| size.map_or(UNKNOWN.into(), |size| bytes_text(size as f64));
    [
        text(&client.client),
        text(&client.protocol),
        client.age.map_or(UNKNOWN.into(), age_text),
        client.open.map_or(UNKNOWN.into(), grouped_number),
        match client.sent_rate {
            Some(0) => "0".into(),
            Some(rate) => format!("{}/s", bytes_text(rate as f64)),
            None => UNKNOWN.into(),
        },
        size(client.sent),
        size(client.received),
        number_text(client.rtt, round_trip_text),
        number_text(client.loss, |loss| format!("{:.1} %", loss * 100.0)),
        number_text(client.packets_per_ack, |packets| format!("{packets:.1}")),
    ]
}

fn number_text(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or(UNKNOWN.into(), show)
}

fn round_trip_text(seconds: f64) -> String {
    let milliseconds = seconds * 1e3;
    if milliseconds < 9.95 { format!("{milliseconds:.1} ms") } else { format!("{milliseconds:.0} ms") }
}

/// Formats seconds in the largest unit.
fn age_text(seconds: f64) -> String {
    match seconds.max(0.0) {
        seconds @ ..60.0 => format!("{}s", seconds.floor()),
        seconds @ ..3_600.0 => format!("{}m", (seconds / 60.0).floor()),
        seconds @ ..86_400.0 => format!("{}h", (seconds / 3_600.0).floor()),
        seconds => format!("{}d", (seconds / 86_400.0).floor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(value: serde_json::Value) -> ClientList {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn each_connection_has_a_line_with_dashes_for_unknown_values() {
        let list = list(json!({
            "clients": [
                { "client": "203.0.113.7:50112", "protocol": "HTTP/3", "age": 754.2, "open": 3, "sent_rate": 41_000_000,
                  "sent": 2_100_000_000_u64, "received": 40_000, "rtt": 0.0231, "loss": 0.002, "packets_per_ack": 8.41 },
                { "client": "198.51.100.9:4431", "protocol": "HTTP/2", "age": 3.9, "open": 1, "sent_rate": 0, "sent": 1_200,
                  "received": 900, "rtt": 0.0004, "loss": null, "packets_per_ack": null },
                { "client": "[2001:db8::1]:1\u{1b}[2J", "age": 90_000 },
            ],
            "selected": 1_204, "connections": 1_204, "handshakes": 18, "older_processes": 0, "more": true,
        }));
        let expected = "\
CLIENT                PROTOCOL  SINCE  OPEN   SENT/S    SENT  RECEIVED     RTT   LOSS  PACKETS/ACK
203.0.113.7:50112     HTTP/3      12m     3  41.0 MB/s  2.1 GB   40.0 kB   23 ms  0.2 %          8.4
198.51.100.9:4431     HTTP/2       3s     1          0  1.2 kB     900 B  0.4 ms      -            -
[2001:db8::1]:1 [2J   -            1d     -          -       -         -       -      -            -
3 of 1,204 connections (18 in a handshake)
";
        let columns = |text: &str| -> Vec<Vec<String>> {
            text.lines()
                .map(|line| {
                    line.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
                })
                .collect()
        };
        let shown = render_clients(&list);
        assert_eq!(columns(&shown), columns(expected), "{shown}");
        let lengths: Vec<usize> = shown.lines().take(4).map(|line| line.chars().count()).collect();
        assert!(lengths.iter().all(|length| *length == lengths[0]), "aligned:\n{shown}");
    }

    #[test]
    fn the_last_lines_name_connections_outside_the_list() {
        let sums = |selected: u64, handshakes: u64, older: u64| {
            sums_line(&list(
                json!({ "clients": [], "selected": selected, "connections": 7, "handshakes": handshakes, "older_processes": older }),
            ))
        };
        assert_eq!(sums(7, 0, 0), "0 of 7 connections\n");
        assert_eq!(
            sums(2, 0, 1),
            "0 of 2 connections that are selected, of 7 in all\nan older process drains: its connections are not in the list\n"
        );
        assert_eq!(
            sums(7, 1_000, 2),
            "0 of 7 connections (1,000 in a handshake)\n2 older processes drain: their connections are not in the list\n"
        );
    }
}
