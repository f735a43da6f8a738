//! Checks logs of `litequic ctl qlog`: each record by the CDDL of the drafts and of litequic's own events, with the
//! type that its name has, and the whole file by the crate `qlog`, which reads it independently. Prints a line for each
//! file.

use cddl::{
    ast::CDDL,
    cddl_from_str,
    validator::{Validator, json::JSONValidator},
};
use qlog::reader::{Event, QlogSeqReader};
use serde_json::Value;
use std::{collections::BTreeMap, env, fs::File, io::BufReader, process::ExitCode};

const SCHEMAS: [&str; 3] = [
    include_str!("../schemas/main-schema.cddl"),
    include_str!("../schemas/quic-events.cddl"),
    include_str!("../schemas/litequic.cddl"),
];
/// The members of `LogFile`.
const LOG_FILE: &str = "file_schema: text\nserialization_format: text\n? title: text\n? description: text";
const RECORD_SEPARATOR: char = '\u{1e}';

/// The type of an event's data: `quic:packet_sent` has `QUICPacketSent`.
fn type_of(name: &str) -> Option<String> {
    let (namespace, event) = name.split_once(':')?;
    let prefix = match namespace {
        "quic" => "QUIC",
        "litequic" => "Litequic",
        _ => return None,
    };
    let capital = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    };
    Some(prefix.to_owned() + &event.split('_').map(capital).collect::<String>())
}

/// The schema of a record with this name; without one, that of the first record.
fn schema(name: Option<&str>) -> String {
    let root = match name {
        None => "Root = QlogFileSeq\n".into(),
        Some(name) => {
            let data = type_of(name).unwrap_or_else(|| panic!("no type for {name}"));
            format!("Root = {{ \"time\": float64, name: \"{name}\", data: {data}, group_id: GroupID }}\n")
        }
    };
    // The validator does not know the unwrap operator (RFC 8610 §3.7).
    root + &SCHEMAS.join("\n").replace("~LogFile", LOG_FILE)
}

fn check(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut schemas: BTreeMap<Option<String>, &'static CDDL<'static>> = BTreeMap::new();
    let mut events: BTreeMap<String, usize> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let record = line.strip_prefix(RECORD_SEPARATOR).ok_or(format!("record {number} has no separator"))?;
        let json: Value = serde_json::from_str(record).map_err(|error| format!("record {number}: {error}"))?;
        let name = json["name"].as_str().map(str::to_owned);
        if (number == 0) != name.is_none() {
            return Err(format!("record {number} has a wrong name"));
        }
        let schema = *schemas.entry(name.clone()).or_insert_with(|| {
            // Few, and for as long as the process.
            let text: &'static str = schema(name.as_deref()).leak();
            Box::leak(Box::new(cddl_from_str(text, true).expect("a schema")))
        });
        JSONValidator::new(schema, json, None)
            .validate()
            .map_err(|error| format!("record {number}: {error}\n{record}"))?;
        *events.entry(name.unwrap_or_else(|| "header".into())).or_default() += 1;
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let reader = QlogSeqReader::new(Box::new(BufReader::new(file))).map_err(|error| format!("{error:?}"))?;
    let read = reader.filter(|event| matches!(event, Event::Qlog(_) | Event::Json(_))).count();
    let written = events.values().sum::<usize>() - 1;
    if read != written {
        return Err(format!("the crate qlog reads {read} of {written} events"));
    }
    Ok(format!("{written} events are valid: {events:?}"))
}

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for path in env::args().skip(1) {
        match check(&path) {
            Ok(told) => println!("{path}: {told}"),
            Err(problem) => {
                eprintln!("{path}: {problem}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
