//! Switches HTTP/3 on and off: by `listen.http3`, or by an order of the operator (`litequic ctl http3`), which holds
//! until a reload changes that key.

use litequic_config::Config;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Switch of HTTP/3 for the process, which open connections follow.
#[derive(Debug)]
pub(super) struct Http3Switch {
    on: watch::Sender<bool>,
    state: Mutex<SwitchState>,
}

#[derive(Debug)]
struct SwitchState {
    /// `listen.http3` of the file.
    configured: bool,
    /// The operator's order, if it differs from `configured`.
    order: Option<bool>,
}

impl Http3Switch {
    /// Starts with `listen.http3` of `config`, or with the `order` of the previous process.
    pub(super) fn new(config: &Config, order: Option<bool>) -> Self {
        let configured = config.listen.http3;
        // Without a TCP listener, the process would serve nothing while HTTP/3 is off.
        let order = order.filter(|on| *on != configured && (*on || !config.listen.tcp.is_empty()));
        Self {
            on: watch::Sender::new(order.unwrap_or(configured)),
            state: Mutex::new(SwitchState { configured, order }),
        }
    }

    /// Receiver by which connections notice the switch.
    pub(super) fn subscribe(&self) -> watch::Receiver<bool> {
        self.on.subscribe()
    }

    /// Returns whether HTTP/3 is on.
    pub(super) fn is_http3_on(&self) -> bool {
        *self.on.borrow()
    }

    /// `listen.http3` of the file.
    pub(super) fn configured_http3(&self) -> bool {
        self.state.lock().configured
    }

    /// The operator's order, for the next process.
    pub(super) fn operator_order(&self) -> Option<bool> {
        self.state.lock().order
    }

    /// Applies the operator's order to the reloaded `config`, unless the reload changes `listen.http3`. Without
    /// `serves_tcp` HTTP/3 stays on: addresses that the reload adds to `listen.tcp` are served only after a restart.
    pub(super) fn apply_order_to(&self, config: &mut Config, serves_tcp: bool) {
        let mut state = self.state.lock();
        if config.listen.http3 != state.configured {
            *state = SwitchState { configured: config.listen.http3, order: None };
        }
        let on = state.order.unwrap_or(state.configured);
        if !on && !serves_tcp {
            tracing::warn!("HTTP/3 stays on until a restart: this process serves nothing over TCP");
        }
        config.listen.http3 = on || !serves_tcp;
    }

    /// Sets the operator's order.
    pub(super) fn set_order(&self, on: bool) {
        let mut state = self.state.lock();
        state.order = (on != state.configured).then_some(on);
    }

    /// Signals the state `on` to connections. Returns whether that is a change.
    pub(super) fn signal_connections(&self, on: bool) -> bool {
        self.on.send_if_modified(|now| std::mem::replace(now, on) != on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http3_order_holds_until_a_reload_changes_the_key() {
        let config = |http3| {
            let origin = "http://127.0.0.1:1".parse().unwrap();
            let mut config = Config::with_defaults(([127, 0, 0, 1], 1).into(), origin, "".into(), "".into());
            config.listen.http3 = http3;
            config
        };
        let reloaded = |switch: &Http3Switch, http3| {
            let mut next = config(http3);
            switch.apply_order_to(&mut next, true);
            next.listen.http3
        };
        let switch = Http3Switch::new(&config(true), None);
        assert!(switch.is_http3_on() && reloaded(&switch, true));
        switch.set_order(false);
        assert_eq!((switch.operator_order(), switch.configured_http3()), (Some(false), true));
        assert!(!reloaded(&switch, true), "another key was changed");
        assert!(!reloaded(&switch, false) && reloaded(&switch, true), "the key was changed");
        assert_eq!(switch.operator_order(), None);
        switch.set_order(true);
        assert_eq!(switch.operator_order(), None, "it is configured so");
        let mut next = config(false);
        switch.apply_order_to(&mut next, false);
        assert!(next.listen.http3, "the process serves nothing over TCP");
        // The next process gets the order, which one without a TCP listener ignores.
        assert!(!Http3Switch::new(&config(true), Some(false)).is_http3_on());
        let mut alone = config(true);
        alone.listen.tcp.clear();
        assert!(Http3Switch::new(&alone, Some(false)).is_http3_on());
    }
}
