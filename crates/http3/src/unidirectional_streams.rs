//! Reads the client's unidirectional streams: its control stream, its QPACK streams, and streams of unknown types.

use super::{
    error_code::{ErrorCode, to_application_error},
    frame::{ControlFrame, ControlStream, PeerRole},
    http3_worker::Http3Connection,
    qpack::{DecoderStream, check_encoder_stream},
    stream_type::StreamType,
    varint,
};
use bytes::Bytes;
use litequic_resources::receive::ReceiveAccount;
use s2n_quic::stream::ReceiveStream;
use std::rc::Rc;

/// Reads a unidirectional stream to its end. Closes the connection if the stream violates HTTP/3.
pub(super) async fn serve_unidirectional<H>(stream: ReceiveStream, connection: Rc<Http3Connection<H>>) {
    if let Err(code) = read_unidirectional(stream, &connection).await {
        connection.close_for_violation(code);
    }
}

async fn read_unidirectional<H>(mut stream: ReceiveStream, connection: &Http3Connection<H>) -> Result<(), ErrorCode> {
    let account = &connection.memory.received;
    let Some((kind, rest)) = read_stream_type(&mut stream, account).await else { return Ok(()) };
    connection.uni.borrow_mut().register_stream(kind)?;
    match kind {
        StreamType::Control => {
            let mut control = ControlStream::new(PeerRole::Client);
            let mut requests = 0;
            for_each_chunk(&mut stream, rest, account, |mut chunk| {
                if std::mem::replace(&mut requests, connection.lifecycle.accepted_requests()) != requests {
                    control.on_request_progress();
                }
                while let Some(said) = control.read_control_frame(&mut chunk)? {
                    match said {
                        // Only this setting changes the behaviour of litequic.
                        ControlFrame::Settings(settings) => {
                            connection.max_field_section_size.set(settings.max_field_section_size);
                        }
                        // A client's GOAWAY concerns pushes alone.
                        ControlFrame::Goaway(_) => {}
                        ControlFrame::PriorityUpdate { id, value } => {
                            if !connection.priorities.apply_update(id, &value, &connection.lifecycle)? {
                                control.count_ineffective_update()?;
                            }
                        }
                    }
                }
                if connection.priorities.is_ordered {
                    let skipped = &connection.worker.metrics.shared.priority_updates_skipped;
                    skipped.increment_by(control.take_skipped_updates().into());
                }
                Ok(())
            })
            .await
        }
        StreamType::QpackEncoder => {
            for_each_chunk(&mut stream, rest, account, |chunk| check_encoder_stream(&chunk)).await
        }
        StreamType::QpackDecoder => {
            let mut instructions = DecoderStream::default();
            for_each_chunk(&mut stream, rest, account, |chunk| instructions.read_cancellations(&chunk)).await
        }
        StreamType::Push | StreamType::Unknown(_) => {
            // An error means that the stream is gone already.
            let _ = stream.stop_sending(to_application_error(ErrorCode::StreamCreationError));
            Ok(())
        }
    }
}

/// Reads the stream's type, and returns it with the bytes behind it. `None` if the stream ends before, which RFC 9114
/// §6.2 allows.
async fn read_stream_type(stream: &mut ReceiveStream, account: &ReceiveAccount) -> Option<(StreamType, Bytes)> {
    let mut partial = varint::PartialVarint::default();
    while let Ok(Some(mut chunk)) = stream.receive().await {
        account.count_taken(chunk.len() as u64);
        if let Some(value) = partial.read_partial(&mut chunk) {
            return Some((StreamType::from_stream_value(value), chunk));
        }
    }
    None
}

/// Calls `read` with each chunk of a critical stream, which must not end before the connection (RFC 9114 §6.2.1).
async fn for_each_chunk(
    stream: &mut ReceiveStream,
    first: Bytes,
    account: &ReceiveAccount,
    mut read: impl FnMut(Bytes) -> Result<(), ErrorCode>,
) -> Result<(), ErrorCode> {
    read(first)?;
    loop {
        match stream.receive().await {
            Ok(Some(chunk)) => {
                account.count_taken(chunk.len() as u64);
                read(chunk)?;
            }
            Ok(None) | Err(s2n_quic::stream::Error::StreamReset { .. }) => return Err(ErrorCode::ClosedCriticalStream),
            Err(_) => return Ok(()), // the connection is gone
        }
    }
}
