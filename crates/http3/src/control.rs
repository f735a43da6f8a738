//! The client's unidirectional streams: its control stream, its QPACK streams, and those of unknown types.

use super::{
    error::{Code, application_error},
    frame::{Control, ControlStream, Endpoint},
    front::Connection,
    priorities::UpdateEffect,
    qpack::{DecoderStream, EncoderStream},
    uni::StreamType,
    varint,
};
use bytes::Bytes;
use litequic_resources::receive::ReceiveAccount;
use s2n_quic::stream::ReceiveStream;
use std::rc::Rc;

/// Reads a unidirectional stream to its end; closes the connection if it violates HTTP/3.
pub(super) async fn serve<H>(stream: ReceiveStream, connection: Rc<Connection<H>>) {
    if let Err(code) = read(stream, &connection).await {
        connection.fail(code);
    }
}

async fn read<H>(mut stream: ReceiveStream, connection: &Connection<H>) -> Result<(), Code> {
    let account = &connection.memory.received;
    let Some((kind, rest)) = stream_type(&mut stream, account).await else { return Ok(()) };
    connection.uni.borrow_mut().open(kind)?;
    match kind {
        StreamType::Control => {
            let mut control = ControlStream::new(Endpoint::Client);
            let mut requests = 0;
            each_chunk(&mut stream, rest, account, |mut chunk| {
                if std::mem::replace(&mut requests, connection.life.accepted()) != requests {
                    control.progress();
                }
                while let Some(said) = control.read(&mut chunk)? {
                    match said {
                        // One of them changes what litequic sends.
                        Control::Settings(settings) => {
                            connection.max_field_section_size.set(settings.max_field_section_size);
                        }
                        // It concerns pushes.
                        Control::Goaway(_) => {}
                        Control::PriorityUpdate { id, value } => {
                            let life = &connection.life;
                            let received = connection.priorities.update(id, &value, life.accepted(), life.next())?;
                            if received == UpdateEffect::Ignored {
                                control.changed_nothing()?;
                            }
                        }
                    }
                }
                let skipped = control.take_skipped_updates();
                if skipped > 0 {
                    connection.priorities.skipped(skipped);
                }
                Ok(())
            })
            .await
        }
        StreamType::QpackEncoder => {
            let mut instructions = EncoderStream::default();
            each_chunk(&mut stream, rest, account, |chunk| instructions.read(&chunk)).await
        }
        StreamType::QpackDecoder => {
            let mut instructions = DecoderStream::default();
            each_chunk(&mut stream, rest, account, |chunk| instructions.read(&chunk)).await
        }
        StreamType::Push | StreamType::Unknown(_) => {
            // An error means that the stream is gone already.
            let _ = stream.stop_sending(application_error(Code::StreamCreationError));
            Ok(())
        }
    }
}

/// The stream's type and what came behind it; `None` for a stream that ends before (RFC 9114 §6.2 allows that).
async fn stream_type(stream: &mut ReceiveStream, account: &ReceiveAccount) -> Option<(StreamType, Bytes)> {
    let mut partial = varint::Partial::default();
    while let Ok(Some(mut chunk)) = stream.receive().await {
        account.taken(chunk.len() as u64);
        if let Some(value) = partial.read(&mut chunk) {
            return Some((StreamType::from_value(value), chunk));
        }
    }
    None
}

/// Reads a critical stream, which must not end before the connection (RFC 9114 §6.2.1).
async fn each_chunk(
    stream: &mut ReceiveStream,
    first: Bytes,
    account: &ReceiveAccount,
    mut read: impl FnMut(Bytes) -> Result<(), Code>,
) -> Result<(), Code> {
    read(first)?;
    loop {
        match stream.receive().await {
            Ok(Some(chunk)) => {
                account.taken(chunk.len() as u64);
                read(chunk)?;
            }
            Ok(None) | Err(s2n_quic::stream::Error::StreamReset { .. }) => return Err(Code::ClosedCriticalStream),
            Err(_) => return Ok(()), // the connection is gone
        }
    }
}
