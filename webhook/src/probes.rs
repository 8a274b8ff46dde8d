//! Serves the health port on a separate thread. Probes must get a response even while every thread for reviews is
//! busy, because otherwise the kubelet restarts the server.

use std::{io, thread};

use tokio::{net::TcpListener, runtime, sync::oneshot};

use crate::{handle::Handle, listener::Listener, tasks::Tasks};

/// Starts the thread that serves the health port, and a background task that ends when the thread ends. If the task is
/// aborted, the thread ends too.
pub(crate) fn spawn<H: Handle>(
    tasks: &mut Tasks,
    socket: TcpListener,
    listener: Listener<H>,
) -> io::Result<()> {
    let socket = socket.into_std()?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let (running, ended) = oneshot::channel::<()>();
    thread::Builder::new().name("probes".to_owned()).spawn(move || {
        // This is dropped when the thread ends, even by a panic.
        let _running = running;
        runtime.block_on(async {
            let Ok(socket) = TcpListener::from_std(socket) else {
                return;
            };
            tokio::select! {
                () = listener.run(socket) => {}
                _ = stopped => {}
            }
        });
    })?;
    tasks.spawn("probes", async move {
        let _stop = stop;
        // Wait until the other side is dropped. No message is ever sent.
        _ = ended.await;
    });
    Ok(())
}
