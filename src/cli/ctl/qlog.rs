//! Runs `litequic ctl qlog`: writes the log of each connection to a file or to standard output, as it arrives.

use super::{
    CtlRequest,
    exchange::{AdminAnswer, AdminClient, REQUEST_TIMEOUT, answered_process},
    failure::CtlFailure,
    status::grouped_number,
};
use crate::cli::exit::{Exit, print_stdout};
use http_body_util::BodyExt;
use litequic_admin::QlogOrder;
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};
use tokio::time::timeout;

/// First byte of a record (RFC 7464 §2.2).
const RECORD_SEPARATOR: u8 = 0x1e;
/// Bytes before the number of a record's log.
const GROUP_ID_KEY: &[u8] = b"\"group_id\":\"";
/// Permissions of log files, which have clients' addresses.
const FILE_MODE: u32 = 0o600;

/// Has the litequic of `client` log connections by `order`, and writes the logs to `out`, or to standard output.
pub(super) async fn record_logs(
    client: &AdminClient,
    order: &QlogOrder,
    out: Option<PathBuf>,
) -> Result<ExitCode, CtlFailure> {
    let mut logs = QlogOutputs::new(out);
    if let Some(path) = logs.path.as_deref().filter(|path| path.exists()) {
        return Err(CtlFailure { exit: Exit::Output, why: format!("{} exists already", path.display()) });
    }
    receive_logs(client, order, &mut logs).await?;
    logs.print_summary()
}

/// Sends `order`, and writes the answer to `logs`.
async fn receive_logs(client: &AdminClient, order: &QlogOrder, logs: &mut QlogOutputs) -> Result<(), CtlFailure> {
    let request = CtlRequest::change("/qlog", Some(order.to_string()));
    let answer = client.finish_exchange(client.begin_request(&request)).await?;
    if !answer.status().is_success() {
        let AdminAnswer { body, status, .. } = client.finish_exchange(AdminAnswer::read_answer(answer)).await?;
        let why = String::from_utf8_lossy(&body).trim_end().to_owned();
        return Err(CtlFailure { exit: Exit::Status, why: if why.is_empty() { status.to_string() } else { why } });
    }
    let which = if order.next { "the next connection" } else { "open connections" };
    let process = answered_process(answer.headers()).map_or_else(String::new, |process| format!("process {process}: "));
    // A closed standard error loses only this line.
    let _ =
        writeln!(io::stderr(), "{process}logging {which} of {} for {} s at most", order.client, order.time.as_secs());
    let mut body = answer.into_body();
    let place = &client.found.place;
    let reading = async {
        while let Some(frame) = body.frame().await {
            let cut = |error| CtlFailure::unavailable(place, format_args!("the log was cut off: {error}"));
            if let Some(lines) = frame.map_err(cut)?.data_ref() {
                logs.write_lines(lines)?;
            }
        }
        Ok(())
    };
    let late = |_| CtlFailure::unavailable(place, "the log did not end in time");
    timeout(order.time + REQUEST_TIMEOUT, reading).await.map_err(late)?
}

/// Outputs of the logs of an answer.
struct QlogOutputs {
    /// File of the first log; `None` for standard output.
    path: Option<PathBuf>,
    /// Beginning of a record that is not complete yet.
    incomplete: Vec<u8>,
    logs: Vec<QlogOutput>,
}

struct QlogOutput {
    out: Box<dyn Write>,
    path: Option<PathBuf>,
    events: u64,
    is_complete: bool,
}

impl QlogOutputs {
    fn new(path: Option<PathBuf>) -> Self {
        Self { path, incomplete: Vec::new(), logs: Vec::new() }
    }

    /// Writes the complete records of `incomplete` and `lines`.
    fn write_lines(&mut self, lines: &[u8]) -> Result<(), CtlFailure> {
        let mut all = std::mem::take(&mut self.incomplete);
        all.extend_from_slice(lines);
        let mut rest = all.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (record, more) = rest.split_at(end + 1);
            rest = more;
            let number = log_number(record).unwrap_or(1);
            self.output_for(number)?.write_record(record)?;
        }
        self.incomplete = rest.to_vec();
        self.logs.iter_mut().try_for_each(|log| log.out.flush().map_err(|error| log.write_failure(&error)))
    }

    /// Output of the log `number`, from 1 on; opens those up to it, in order.
    fn output_for(&mut self, number: usize) -> Result<&mut QlogOutput, CtlFailure> {
        while self.logs.len() < number {
            let path = self.path.as_deref().map(|path| numbered_path(path, self.logs.len() + 1));
            let log = match &path {
                Some(path) => QlogOutput::create_file(path)?,
                None => QlogOutput { out: Box::new(io::stdout()), path: None, events: 0, is_complete: false },
            };
            self.logs.push(log);
        }
        let unavailable = || CtlFailure { exit: Exit::Software, why: "no such log".into() };
        self.logs.get_mut(number.saturating_sub(1)).ok_or_else(unavailable)
    }

    /// Prints the number of events of each file.
    fn print_summary(&self) -> Result<ExitCode, CtlFailure> {
        let line = |log: &QlogOutput| {
            let path = log.path.as_ref()?.display();
            Some(format!("{path}: {} events\n", grouped_number(log.events)))
        };
        let lines: String = self.logs.iter().filter_map(line).collect();
        if !self.logs.iter().all(|log| log.is_complete) {
            return Err(CtlFailure { exit: Exit::Unavailable, why: format!("the log was cut off\n{lines}") });
        }
        if self.logs.is_empty() {
            return Err(CtlFailure { exit: Exit::Status, why: "no connection has begun".into() });
        }
        Ok(print_stdout(lines.as_bytes()))
    }
}

impl QlogOutput {
    fn create_file(path: &Path) -> Result<Self, CtlFailure> {
        let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path);
        let file: File =
            file.map_err(|error| CtlFailure { exit: Exit::Output, why: format!("{}: {error}", path.display()) })?;
        Ok(Self { out: Box::new(io::BufWriter::new(file)), path: Some(path.into()), events: 0, is_complete: false })
    }

    fn write_record(&mut self, record: &[u8]) -> Result<(), CtlFailure> {
        self.events += 1;
        self.is_complete |= record.windows(LAST_EVENT.len()).any(|part| part == LAST_EVENT);
        self.out.write_all(record).map_err(|error| self.write_failure(&error))
    }

    fn write_failure(&self, error: &io::Error) -> CtlFailure {
        let place = self.path.as_ref().map_or_else(|| "standard output".into(), |path| path.display().to_string());
        CtlFailure { exit: Exit::Output, why: format!("{place}: {error}") }
    }
}

/// Event in the last record of each log.
const LAST_EVENT: &[u8] = b"\"name\":\"litequic:log_ended\"";

/// Number of a record's log.
fn log_number(record: &[u8]) -> Option<usize> {
    let record = record.strip_prefix(&[RECORD_SEPARATOR])?;
    let at = record.windows(GROUP_ID_KEY.len()).position(|part| part == GROUP_ID_KEY)?;
    let digits = record.get(at + GROUP_ID_KEY.len()..)?.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0_usize, |number, digit| number * 10 % 1_000 + usize::from(digit - b'0'));
    (1..=QlogOrder::MAX_LOGGED_CONNECTIONS).contains(&number).then_some(number)
}

/// File name of log `number`: `a.sqlog`, `a-2.sqlog` and so on.
fn numbered_path(path: &Path, number: usize) -> PathBuf {
    if number == 1 {
        return path.into();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
    path.with_file_name(format!("{stem}-{number}{}", extension.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn records_of_several_logs_go_to_private_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sqlog");
        let mut logs = QlogOutputs::new(Some(path.clone()));
        let header = |number| format!("\u{1e}{{\"trace\":{{\"common_fields\":{{\"group_id\":\"{number}\"}}}}}}\n");
        let event = |number, text: &str| format!("\u{1e}{{\"group_id\":\"{number}\",\"name\":\"{text}\"}}\n");
        let all = [
            header(1),
            event(1, "x"),
            header(2),
            event(2, "y"),
            event(1, "z \\\"group_id\\\":\\\"2"),
            event(1, "litequic:log_ended"),
            event(2, "litequic:log_ended"),
        ];
        for byte in all.concat().as_bytes() {
            logs.write_lines(&[*byte]).map_err(|failure| failure.why).unwrap();
        }
        assert_eq!(logs.print_summary().ok(), Some(ExitCode::SUCCESS));
        let first = fs::read_to_string(&path).unwrap();
        assert_eq!(first, [&all[0], &all[1], &all[4], &all[5]].map(String::as_str).concat());
        let second = directory.path().join("a-2.sqlog");
        assert_eq!(fs::read_to_string(&second).unwrap(), [&all[2], &all[3], &all[6]].map(String::as_str).concat());
        assert_eq!(fs::metadata(second).unwrap().permissions().mode() & 0o777, FILE_MODE);
        // An existing file is not overwritten.
        assert!(QlogOutputs::new(Some(path)).write_lines(header(1).as_bytes()).is_err());
    }
}
