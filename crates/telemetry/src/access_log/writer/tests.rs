use super::*;
use crate::access_log::line::MAX_VALUE;
use litequic_base::log_writer::LineReceiver;
use std::time::SystemTime;

/// Log whose writer is the test, and whose queue has `room` bytes.
fn unwritten(room: usize) -> (LineBuffer, LineReceiver, Arc<AccessLogMetrics>) {
    let (writer, waiting) = line_queue(room);
    let metrics = Arc::<AccessLogMetrics>::default();
    let lines = LineBuffer::new(writer, metrics.clone());
    (lines, waiting, metrics)
}

fn written(write: impl FnOnce(&mut AccessLine<'_>)) -> String {
    let (mut lines, waiting, _) = unwritten(MAX_ACCESS_QUEUE_BYTES);
    lines.append_line(write);
    drop(lines);
    String::from_utf8(waiting.pop_piece().unwrap().text).unwrap()
}

#[test]
fn a_line_has_this_format() {
    let write = |line: &mut AccessLine<'_>| {
        line.write_time("time", SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123));
        line.write_plain("client", "192.0.2.1");
        line.write_text("path", b"/a b");
        line.write_text("origin", b"app");
        line.write_text("error", b"");
        line.write_number("status", 200_u64);
        line.write_seconds("duration", Duration::from_micros(1_000_070));
    };
    let json = "{\"time\":\"2023-11-14T22:13:20.123Z\",\"client\":\"192.0.2.1\",\"path\":\"/a b\",\"origin\":\"app\",\
                \"status\":200,\"duration\":1.000070}\n";
    assert_eq!(written(write), json);
}

#[test]
fn no_value_forges_a_line_or_another_value() {
    let long = vec![b'x'; 100_000];
    let evil: [&[u8]; 8] = [
        b"a\n{\"status\":200}",
        b"a\r\nstatus=200",
        b"\",\"status\":200,\"x\":\"",
        b"x status=200",
        b"\\\"status=200",
        b"\x1b]0;title\x07 \x9b \xff\xfe \x00 \x7f",
        "\u{2028} \u{202e} \u{1f600}".as_bytes(),
        &long,
    ];
    for value in evil {
        let line = written(|line| {
            line.write_text("path", value);
            line.write_number("bytes", 7_u64);
        });
        assert!(line.ends_with('\n') && line.len() < 3 * MAX_VALUE);
        let body = line.trim_end_matches('\n');
        assert!(body.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line}");
        let object: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(object.as_object().unwrap().len(), 2, "{line}");
        assert_eq!(object["bytes"], 7);
        let quoted = object["path"].as_str().unwrap();
        match value.len() <= MAX_VALUE {
            true => assert_eq!(quoted, String::from_utf8_lossy(value)),
            false => assert!(quoted.ends_with("x...")),
        }
    }
}

#[test]
fn lines_beyond_the_queue_are_dropped_and_counted() {
    let two = 2 * "{\"status\":200}\n".len();
    let (mut lines, waiting, metrics) = unwritten(two);
    for _ in 0..3 {
        lines.append_line(|line| line.write_number("status", 200_u64));
        lines.append_line(|line| line.write_number("status", 200_u64));
        lines.send_lines();
    }
    assert_eq!((metrics.queued.get(), metrics.dropped.get()), (2, 4));
    assert_eq!(waiting.pop_piece().unwrap().lines, 2);
    assert_eq!(waiting.pop_piece(), None);
}

#[test]
fn full_buffers_are_sent_without_a_flush() {
    let (mut lines, waiting, _) = unwritten(MAX_ACCESS_QUEUE_BYTES);
    while waiting.pop_piece().is_none() {
        lines.append_line(|line| line.write_text("path", &[b'x'; 1000]));
        assert!(lines.text.len() < ACCESS_PIECE_BYTES);
    }
}

#[tokio::test]
async fn all_lines_reach_the_file_even_across_a_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    std::fs::write(&path, "before\n").unwrap();
    let control = Arc::<WriterMetrics>::default();
    let log = AccessLogWriter::start_writer(LogTarget::File(path.clone()), Arc::clone(&control)).await.unwrap();
    let mut lines = LineBuffer::new(log.sender.clone(), Arc::default());
    lines.append_line(|line| line.write_number("n", 1_u64));
    lines.send_lines();
    while !std::fs::read_to_string(&path).unwrap().ends_with("{\"n\":1}\n") {
        tokio::task::yield_now().await;
    }
    let rotated = folder.path().join("access.log.1");
    std::fs::rename(&path, &rotated).unwrap();
    log.sender.request_reopen();
    lines.append_line(|line| line.write_number("n", 2_u64));
    drop(lines);
    log.sender.end_queue();
    wait_for_writer_end(log.ended).await;
    assert_eq!(std::fs::read_to_string(rotated).unwrap(), "before\n{\"n\":1}\n");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "{\"n\":2}\n");
    assert_eq!(control.lost.load(Relaxed), 0);
}

#[tokio::test]
async fn lines_that_cannot_be_written_are_counted() {
    let control = Arc::<WriterMetrics>::default();
    // Every write to `/dev/full` fails for want of space (full(4)).
    let log = AccessLogWriter::start_writer(LogTarget::File("/dev/full".into()), Arc::clone(&control)).await.unwrap();
    let mut lines = LineBuffer::new(log.sender.clone(), Arc::default());
    lines.append_line(|line| line.write_number("n", 1_u64));
    drop(lines);
    log.sender.end_queue();
    wait_for_writer_end(log.ended).await;
    assert_eq!(control.lost.load(Relaxed), 1);
}
