"""The page of `wm play`: V's decoder, M and C as weights, and JavaScript that runs them in a browser."""
