"""What a freeze or a checkpoint would change, before it is made; plans of several; how close the forecasts came."""
