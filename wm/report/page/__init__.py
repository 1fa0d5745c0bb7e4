"""What the pages of `wm report` and `wm view` share: a player of episodes, interactive charts, styles and scripts."""
